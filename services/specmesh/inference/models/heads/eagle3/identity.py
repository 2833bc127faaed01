"""The target of a head: what its files say about it, and whether a model is the one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specmesh.inference.model import ModelNotLoadable
from specmesh.inference.models.heads.eagle3.config import Eagle3Config


@dataclass(frozen=True, slots=True)
class HeadsTarget:
    """What a head's files say about its target beside sizes: little, unless we trained it.

    ``name`` is that of a folder or a Hugging Face id. ``digests`` are the target's
    ``ModelDescription.weights_digest`` by data type; if there are any, they alone count.
    """

    name: str | None = None
    architectures: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)

    def check(self, config: Eagle3Config, folder: Path, target: Any, digest: str) -> None:
        """Raise ``ModelNotLoadable`` unless ``target``, a model as ``read_model`` returns it, may
        be the target: what its files say is compared, and what they don't say is unknown."""
        text_config = target.config.get_text_config()
        theirs_and_ours: list[tuple[str, object, object]] = [
            ("hidden size", config.target_hidden_size, text_config.hidden_size),
            ("vocabulary size", config.vocab_size, text_config.vocab_size),
        ]
        if self.digests:
            told = ", ".join(f"{each} in {dtype}" for dtype, each in self.digests.items())
            known = digest if digest in self.digests.values() else None
            theirs_and_ours.insert(0, ("weights", known or told, digest))
        else:
            architecture = type(target).__name__
            if self.architectures and architecture not in self.architectures:
                expected = ", ".join(self.architectures)
                theirs_and_ours.append(("architecture", expected, architecture))
            if self.name is not None:
                # A copy of the model is the model, in whatever folder.
                names = [_last_part(name) for name in (self.name, target.name_or_path)]
                same = names[0].lower() == names[1].lower()
                ours = self.name if same else target.name_or_path
                theirs_and_ours.append(("name", self.name, ours))
        for what, theirs, ours in theirs_and_ours:
            if theirs != ours:
                raise ModelNotLoadable(
                    f"the heads in {str(folder)!r} are for another target, with {what} {theirs}, "
                    f"but this target has {what} {ours}"
                )


def _last_part(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]
