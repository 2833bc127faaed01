"""The benchmarks: each is a program that is imported when it is called."""

from __future__ import annotations

from specmesh.cli.programs import Program

BENCHMARKS = (
    Program(
        "bench strategies",
        "specmesh.bench.strategies",
        "local",
        "Run every strategy on the same prompts: speed, compute spent, the same text?",
    ),
    Program(
        "bench lookahead",
        "specmesh.bench.lookahead",
        "local",
        "Drafts of fixed lengths against those that end where going on doesn't pay.",
    ),
    Program(
        "bench tree",
        "specmesh.bench.tree",
        "local",
        "Token trees, as wide as pays and of fixed widths, against chains and the target alone.",
    ),
    Program(
        "bench heads",
        "specmesh.bench.heads",
        "local",
        "How many tokens of heads' drafts the target accepts, by depth, beside a drafter's.",
    ),
    Program(
        "bench mesh",
        "specmesh.bench.mesh",
        "local",
        "DSI's Table 2 through real processes whose models wait instead of computing.",
    ),
    Program(
        "bench filter",
        "specmesh.bench.filter",
        "local",
        "CALID's Figure 3: quality against the share of tokens that the target never sees.",
    ),
    Program(
        "bench hops",
        "specmesh.bench.hops",
        "local",
        "Time a verifier that computes nothing against a bare gRPC echo.",
    ),
    Program(
        "bench engine",
        "specmesh.bench.engine",
        "inference",
        "Time the inference engine against transformers' generate.",
    ),
    Program(
        "bench rounding",
        "specmesh.bench.rounding",
        "inference",
        "Count how often a coupled token depends on the shape of its forward.",
    ),
    Program(
        "bench hcmp",
        "specmesh.bench.hcmp",
        "inference",
        "Divide forwards among processing units: the same logits, and how much quicker?",
    ),
    Program(
        "bench what-if",
        "specmesh.bench.what_if",
        "local",
        "What traces say would have been quicker, against really doing it.",
    ),
    Program(
        "bench memory",
        "specmesh.bench.memory",
        "local",
        "See whether any process of a mesh grows with the requests it answers.",
    ),
    Program(
        "bench traces",
        "specmesh.bench.traces",
        "local",
        "What answers wait for by their traces, and how long a store of many takes to list.",
    ),
    Program(
        "bench chaos",
        "specmesh.bench.chaos",
        "local",
        "Break a mesh at random while answers stream, and check every token.",
    ),
    Program(
        "bench failover",
        "specmesh.bench.failover",
        "local",
        "Lose the primary of a Redis with Sentinels while answers stream, and check every token.",
    ),
    Program(
        "bench plan",
        "specmesh.bench.plan_check",
        "local",
        "Start what 'specmesh plan' plans, and hold what it predicts against what is measured.",
    ),
    Program(
        "bench profile",
        "specmesh.bench.profile_check",
        "local",
        "Hold a profile's times, and the strategy it chooses, against what is measured.",
    ),
    Program(
        "bench load",
        "specmesh.bench.load",
        "local",
        "Check what 'specmesh load' measures against theory, and what it costs.",
    ),
    Program(
        "bench prefixes",
        "specmesh.bench.prefixes",
        "local",
        "Chats that go to any orchestrator, with and without the prefix directory.",
    ),
)
