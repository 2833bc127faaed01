"""The picture of a timeline in a terminal."""

from io import StringIO

from rich.console import Console

from specmesh.serving.conventions import DRAFT_SPAN, VERIFY_SPAN
from specmesh.tools.demo.timeline import LEGEND, WIDTH, timeline_picture
from specmesh.traces.analysis.timeline import Bar, Committed, Row, Timeline
from specmesh.traces.spans import Node

MS = 1_000_000
STRETCH = Timeline(
    answer_start_ns=0,
    start_ns=100 * MS,
    end_ns=167 * MS,  # one cell a millisecond
    rows=(
        Row(
            Node("specmesh-verifier", "verifier-0"),
            VERIFY_SPAN,
            (
                Bar(90 * MS, 105 * MS, cancelled=False),
                Bar(105 * MS, 115 * MS, cancelled=False),
                Bar(116 * MS, 120 * MS, cancelled=True),
                Bar(160 * MS, 180 * MS, cancelled=True),
            ),
        ),
        Row(
            Node("specmesh-drafter", "drafter"),
            DRAFT_SPAN,
            (Bar(100 * MS, 116 * MS, cancelled=True), Bar(117 * MS, 117 * MS, cancelled=False)),
        ),
    ),
    commits=(Committed(105 * MS, 4), Committed(115 * MS, 12)),
    rejections_ns=(115 * MS,),
)


def plain(*renderables):
    out = StringIO()
    console = Console(file=out, width=WIDTH, color_system=None)
    for each in renderables:
        console.print(each)
    return out.getvalue()


def test_letters_tell_who_worked_and_what_was_cancelled():
    lines = [line.rstrip() for line in plain(timeline_picture(STRETCH, "title")).splitlines()]
    assert lines == [
        "",
        "title",
        "ms           |100      |110      |120      |130      |140      |150      |160",
        "verifier-0   VVVVV[VVVVVVVVV [VVx                                        [VVVVVV",
        "drafter      [ddddddddddddddx [",
        "rejected                    R",
        "committed         4         +",
    ]


def test_every_line_fits_the_terminal():
    lines = plain(timeline_picture(STRETCH, "title"), LEGEND).splitlines()
    assert len(lines) == 9, "nothing was wrapped"
    assert max(map(len, lines)) <= WIDTH
