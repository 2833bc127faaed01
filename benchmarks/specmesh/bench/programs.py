"""The benchmarks, each a program that is imported when it is called."""

from __future__ import annotations

from specmesh.cli.programs import Program

BENCHMARKS = (
    Program(
        "bench strategies",
        "specmesh.bench.strategies",
        "local",
        "Compare the speed, compute and text of every strategy on the same prompts.",
    ),
    Program(
        "bench lookahead",
        "specmesh.bench.lookahead",
        "local",
        "Compare drafts of fixed lengths with adaptive ones.",
    ),
    Program(
        "bench tree",
        "specmesh.bench.tree",
        "local",
        "Compare token trees of adaptive and fixed widths with chains and the target alone.",
    ),
    Program(
        "bench heads",
        "specmesh.bench.heads",
        "local",
        "Measure how many tokens of heads' and a drafter's drafts the target accepts, by depth.",
    ),
    Program(
        "bench mesh",
        "specmesh.bench.mesh",
        "local",
        "Repeat DSI's Table 2 on real processes whose models wait instead of computing.",
    ),
    Program(
        "bench crowd",
        "specmesh.bench.crowd",
        "local",
        "Compare the strategies with the target alone while many answers are under way.",
    ),
    Program(
        "bench filter",
        "specmesh.bench.filter",
        "local",
        "Repeat CALID's Figure 3: quality against the share of tokens that the target never sees.",
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
        "bench vllm",
        "specmesh.bench.peer",
        "local",
        "Compare a mesh with vLLM, which decodes the same prompts by itself.",
    ),
    Program(
        "bench rounding",
        "specmesh.bench.rounding",
        "inference",
        "Count how often a coupled token depends on the shape of its forward.",
    ),
    Program(
        "bench sampling",
        "specmesh.bench.sampling",
        "local",
        "Time the choice and acceptance of tokens by the size of the vocabulary.",
    ),
    Program(
        "bench linear",
        "specmesh.bench.linear",
        "inference",
        "Time linear layers by the rows of a forward, beside MKL, oneDNN and the memory.",
    ),
    Program(
        "bench grammar",
        "specmesh.bench.grammar",
        "local",
        "Answer JSON Schemas with and without speculation, and time their masks.",
    ),
    Program(
        "bench vocabulary",
        "specmesh.bench.vocabulary",
        "local",
        "Measure what a large vocabulary and a long context cost a mesh and the engines.",
    ),
    Program(
        "bench hcmp",
        "specmesh.bench.hcmp",
        "inference",
        "Divide forwards among processing units, and compare logits and speed.",
    ),
    Program(
        "bench what-if",
        "specmesh.bench.what_if",
        "local",
        "Compare predictions from traces with the measured effect of each change.",
    ),
    Program(
        "bench memory",
        "specmesh.bench.memory",
        "local",
        "Check whether any process of a mesh grows with the requests it answers.",
    ),
    Program(
        "bench traces",
        "specmesh.bench.traces",
        "local",
        "Measure what answers wait for, from traces, and the speed of a store of many traces.",
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
        "Start meshes that 'specmesh plan' plans, and compare predictions with measurements.",
    ),
    Program(
        "bench profile",
        "specmesh.bench.profile_check",
        "local",
        "Compare a profile's times, and the strategy it chooses, with measurements.",
    ),
    Program(
        "bench load",
        "specmesh.bench.load",
        "local",
        "Check the accuracy of 'specmesh load' against theory, and its own cost.",
    ),
    Program(
        "bench capacity",
        "specmesh.bench.capacity",
        "local",
        "Measure what the mesh itself costs per token, beside a bare gRPC relay.",
    ),
    Program(
        "bench overload",
        "specmesh.bench.overload",
        "local",
        "Offer a mesh more than it can answer, and check what it answers, refuses and recovers.",
    ),
    Program(
        "bench prefixes",
        "specmesh.bench.prefixes",
        "local",
        "Compare chats that go to any orchestrator, with and without the prefix directory.",
    ),
)
