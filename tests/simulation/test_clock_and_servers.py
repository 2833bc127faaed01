from dataclasses import replace
from functools import partial

import pytest
from tests.simulation.meshes import law, mesh_of

from specmesh.decoding.simulated.hashed import SimulatedDrafter, SimulatedTarget
from specmesh.orchestrator.strategies import STRATEGIES
from specmesh.orchestrator.strategies.base import Goal
from specmesh.orchestrator.strategies.commands import Draft
from specmesh.simulation.calls import SimulatedCalls
from specmesh.simulation.clock import Clock
from specmesh.simulation.costs import Hop, MeshCosts
from specmesh.simulation.law import ForwardShape, Law
from specmesh.simulation.mesh import Faults, MeshModel, SimulatedMesh
from specmesh.simulation.models import AcceptanceRates, CertainModels
from specmesh.simulation.run import simulate
from specmesh.simulation.servers import SharedForward, SimulatedJob, SimulatedServer, Step


class Log:
    """Jobs that write down when each of their forwards ended."""

    def __init__(self, clock):
        self.clock = clock
        self.forwards = []
        self.lost = []

    def job(self, name, num_forwards=1, request=0):
        return SimulatedJob(
            request, self.work(name, Step(), num_forwards), lambda: self.lost.append(name)
        )

    def work(self, name, step, num_forwards):
        for _ in range(num_forwards):
            yield step
            self.forwards.append((self.clock.now, name))


def run_out(clock):
    with pytest.raises(RuntimeError):
        clock.run(done=lambda: False)


def test_timers_go_off_by_time_and_then_in_the_order_they_were_set():
    clock, order = Clock(), []
    for delay_s, name in ((2.0, "late"), (1.0, "first"), (1.0, "second")):
        clock.after(delay_s, lambda name=name: order.append((clock.now, name)))
    clock.after(0.5, lambda: None).cancelled = True
    run_out(clock)
    assert order == [(1.0, "first"), (1.0, "second"), (2.0, "late")]


def test_a_server_works_on_one_job_at_a_time_in_order_of_arrival():
    clock = Clock()
    server, log = SimulatedServer(clock, law(2.0), quantile=lambda: 0.0), Log(clock)
    server.submit(log.job("a", num_forwards=2))
    server.submit(log.job("b"))
    run_out(clock)
    assert log.forwards == [(2.0, "a"), (4.0, "a"), (6.0, "b")]
    assert server.busy_s == 6.0


def test_a_cancelled_job_frees_its_slot_at_once():
    clock = Clock()
    server, log = SimulatedServer(clock, law(10.0), quantile=lambda: 0.0), Log(clock)
    running, waiting = log.job("running"), log.job("waiting")
    for job in (running, waiting, log.job("next")):
        server.submit(job)
    clock.after(1.0, lambda: server.cancel(waiting))
    clock.after(3.0, lambda: server.cancel(running))
    run_out(clock)
    assert log.forwards == [(13.0, "next")]
    assert server.busy_s == 13.0


def test_a_dead_server_loses_its_jobs():
    clock = Clock()
    server, log = SimulatedServer(clock, law(10.0), quantile=lambda: 0.0), Log(clock)
    server.submit(log.job("running"))
    server.submit(log.job("waiting"))
    clock.after(1.0, server.die)
    run_out(clock)
    assert log.forwards == []
    assert log.lost == ["running", "waiting"]


def test_verifications_go_to_the_least_busy_live_replica():
    clock = Clock()
    mesh = SimulatedMesh(clock, mesh_of(1.0, (), num_verifiers=3), seed=0)
    log = Log(clock)
    mesh.verifiers[0].alive = False
    for name in "abc":
        mesh.verify(log.job(name))
    assert [server.num_jobs for server in mesh.verifiers] == [0, 2, 1]
    run_out(clock)
    assert log.forwards == [(1.0, "a"), (1.0, "b"), (2.0, "c")]


def answer(strategy, mesh, num_tokens=5):
    target = SimulatedTarget()
    models = CertainModels(target, (SimulatedDrafter(target, 0.8),))
    return simulate(STRATEGIES[strategy](Goal(num_tokens)), models, mesh)


def test_the_work_of_a_dead_replica_goes_to_another():
    outages = Faults(outages=[(1.5, 0, False)])
    answered = answer("autoregressive", mesh_of(1.0, (), 2, faults=outages))
    assert answered.duration_s == 5.5
    assert answered.token_ids == answer("autoregressive", mesh_of(1.0, ())).token_ids


def test_without_any_replica_work_waits_for_one():
    outages = Faults(outages=[(1.5, 0, False), (9.0, 0, True)])
    answered = answer("autoregressive", mesh_of(1.0, (), 1, faults=outages))
    assert answered.duration_s == 13.0


def test_the_first_forward_takes_the_time_to_first_token_and_later_ones_less():
    answered = answer("autoregressive", mesh_of(Law.fixed(1000, first_ms=4000), ()))
    assert answered.first_token_s == 4.0
    assert answered.duration_s == 8.0


def test_a_hop_is_paid_there_and_back():
    answered = answer("autoregressive", mesh_of(1.0, (), hop_s=0.25))
    num_calls = 2  # of up to three tokens each, since a call goes on for about two seconds
    assert answered.duration_s == pytest.approx(5 * 1.0 + num_calls * 2 * 0.25)


def test_measured_latencies_are_drawn_as_often_as_they_were_seen():
    histogram = Law.drawn({0.1: 1, 0.2: 0, 0.4: 3})
    drawn = [histogram.ms(ForwardShape(), quantile=n / 100) for n in range(100)]
    assert {value: drawn.count(value) for value in set(drawn)} == {0.1: 25, 0.4: 75}


@pytest.mark.parametrize("counts", [{}, {0.1: 0}, {-0.1: 1}, {0.1: -1, 0.2: 2}])
def test_a_histogram_must_have_weight_and_nothing_negative(counts):
    with pytest.raises(ValueError, match="histogram"):
        Law.drawn(counts)


def test_calls_share_a_forward_and_who_comes_meanwhile_waits_for_the_next():
    clock = Clock()
    server, log = (
        SimulatedServer(clock, law(2.0), quantile=lambda: 0.0, max_batch=2),
        Log(clock),
    )
    server.submit(log.job("a", 2))
    for name in "bcd":
        clock.after(1.0, partial(server.submit, log.job(name)))
    run_out(clock)
    assert log.forwards == [(2.0, "a"), (4.0, "a"), (4.0, "b"), (6.0, "c"), (6.0, "d")]
    assert server.busy_s == 6.0


def test_a_forward_goes_on_for_the_others_when_one_of_its_calls_is_cancelled():
    clock = Clock()
    server, log = (
        SimulatedServer(clock, law(2.0), quantile=lambda: 0.0, max_batch=2),
        Log(clock),
    )
    jobs = [log.job(name) for name in "abc"]
    for job in jobs:
        server.submit(job)
    clock.after(1.0, lambda: server.cancel(jobs[1]))
    run_out(clock)
    assert log.forwards == [(2.0, "a"), (4.0, "c")]


def test_calls_that_come_at_the_same_time_share_the_first_forward():
    clock = Clock()
    server = SimulatedServer(clock, law(2.0), quantile=lambda: 0.0, max_batch=3)
    log = Log(clock)
    for name in "abcd":
        server.submit(log.job(name))
    run_out(clock)
    assert log.forwards == [(2.0, "a"), (2.0, "b"), (2.0, "c"), (4.0, "d")]


def test_a_wide_forward_takes_longer():
    assert Law.fixed(1000, 500).ms(ForwardShape(tokens=3)) == 2000


def test_drafts_go_to_the_least_busy_replica_of_their_drafter():
    clock = Clock()
    drafters = (1.0, 2.0)
    mesh = SimulatedMesh(clock, mesh_of(1.0, drafters, drafter_replicas=2), seed=0)
    log = Log(clock)
    for name in "abc":
        mesh.draft(1, log.job(name))
    run_out(clock)
    assert log.forwards == [(2.0, "a"), (2.0, "b"), (4.0, "c")]


def test_a_job_knows_how_long_it_waited_and_which_forward_it_shared():
    clock = Clock()
    server, log = (
        SimulatedServer(clock, Law.fixed(1000, 500), quantile=lambda: 0.0, max_batch=2),
        Log(clock),
    )
    first = log.job("first")
    wide, narrow = (
        SimulatedJob(0, log.work(name, Step(tokens), 1), lambda: None)
        for name, tokens in (("wide", 3), ("narrow", 1))
    )
    server.submit(first)
    for job in (wide, narrow):
        clock.after(0.5, partial(server.submit, job))
    run_out(clock)
    assert (first.queue_s, first.forward) == (0.0, SharedForward(1.0, 1, 1))
    assert (wide.queue_s, wide.forward) == (0.5, SharedForward(2.5, 2, 4))
    assert (narrow.queue_s, narrow.forward) == (0.5, SharedForward(2.5, 2, 4))


def test_a_cancellation_that_overtakes_its_call_cancels_it():
    clock = Clock()
    mesh = SimulatedMesh(clock, mesh_of(1.0, (1.0,)), seed=0)
    log = Log(clock)
    early, late = log.job("early"), log.job("late")
    for job in (early, late):
        mesh.cancel(job)
    mesh.verify(early)
    mesh.draft(0, late)
    run_out(clock)
    assert log.forwards == []


def test_a_cancelled_draft_whose_hop_is_long_takes_nothing():
    clock = Clock()
    costs = replace(MeshCosts.fixed(20, 5), verify_hop=Hop(1), draft_hop=Hop(10))
    mesh, models = SimulatedMesh(clock, MeshModel(costs), 0), AcceptanceRates().models(0)
    calls = SimulatedCalls(0, models, mesh, pytest.fail, pytest.fail)
    calls.draft(Draft(1, (), 8), models.begin((0,)))
    calls.cancel(1)
    run_out(clock)
    assert mesh.drafters[0].busy_s == 0
