"""What programs do to an open store: fork, signals, odd arguments, readers that hang up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from models import LAYOUTS, load_and_check, publish, transformer
from mooncake import _core
from mooncake.reshard.weight import WeightStore
from mooncake.reshard.weight import store as store_module
from mooncake.reshard.weight.errors import WeightBusyError, WeightInvalidArgumentError
from polling import wait_until
from test_crashes import space


def in_forked_child(work, seconds=60.0):
    """The wait status of a child that runs `work`, then destroys everything as Python does."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(f"child: {error!r}", file=sys.stderr, flush=True)
            os._exit(9)
        sys.exit(0)  # an exception: unwinds and collects what the parent had open
    ended = []

    def has_ended():
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            ended.append(status)
        return pid

    try:
        wait_until(has_ended, seconds)
    finally:
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return ended[0]


_FORKING = """
import os, sys
from models import LAYOUTS, load_and_check, publish, transformer
from mooncake.reshard.adapters import CheckpointAdapter
from mooncake.reshard.weight import WeightIdentity, WeightStore
from mooncake.reshard.weight.errors import WeightUnavailableError
from test_process_faults import in_forked_child

model, identity = transformer(), WeightIdentity("tests", "forks", sys.argv[2], 1)
store = WeightStore(sys.argv[1])

def use_the_parents():
    try:
        store.weight_is_exist(identity)
    except WeightUnavailableError as error:
        assert str(os.getppid()) in str(error) and str(os.getpid()) in str(error), error
    else:
        raise AssertionError("the parent's channels were used")

adapter = CheckpointAdapter(identity)
with store.weight_put(model, adapter) as writer:
    for number, (tensor_id, tensor) in enumerate(adapter.tensors(model)):
        writer.weight_put_tensor(tensor_id, tensor)
        if number == 2:
            assert in_forked_child(use_the_parents) == 0
assert in_forked_child(lambda: None) == 0
load_and_check(store, model, LAYOUTS["tp2-pp2"], identity)
"""


def test_a_forked_child_ends_and_leaves_the_parents_publish_alone(target, identity):
    done = subprocess.run(
        [sys.executable, "-c", _FORKING, target, identity.revision],
        cwd=os.path.dirname(__file__),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("threads", [-1, 1025, 2**40, True, 1.0])
def test_impossible_thread_counts_are_refused(store, target, identity, threads):
    model = transformer()
    publish(store, model, LAYOUTS["tp1"], identity)
    with pytest.raises(WeightInvalidArgumentError, match=r"0 \.\. 1024, got " + str(threads)):
        load_and_check(store, model, LAYOUTS["tp1"], identity, threads=threads)
    with pytest.raises(WeightInvalidArgumentError, match=r"0 \.\. 1024, got " + str(threads)):
        WeightStore(target, threads=threads)


class Ring(BaseException):
    """What the signal handler raises."""


def test_a_signal_in_a_load_is_the_exception_that_comes_out(target, identity, monkeypatch):
    model = transformer()
    rung = []

    def slow(step):
        if step == "load.group_copied":
            rung.clear()
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            # The load looks for signals every 100 ms: it meets this one, and looks again after it.
            wait_until(lambda: rung and time.monotonic() > rung[0] + 0.35)

    class Core:
        StoreError = _core.StoreError

        @staticmethod
        def StoreClient(*arguments, **options):
            return _core.StoreClient(*arguments, step_observer=slow, **options)

    monkeypatch.setattr(store_module, "_core", Core)

    def ring(*_):
        rung.append(time.monotonic())
        raise Ring

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with WeightStore(target) as store:
            publish(store, model, LAYOUTS["tp1"], identity)
            for progress in (None, lambda progress: None):
                with pytest.raises(Ring):
                    load_and_check(store, model, LAYOUTS["tp1"], identity, progress=progress)
                assert store.weight_get_metadata(identity).metadata.active_lease_count == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


_SLEEPER = """
import os, signal, sys
from models import LAYOUTS, load_and_check, transformer
from mooncake import _core
from mooncake.reshard.weight import WeightIdentity, WeightStore
from mooncake.reshard.weight import store as store_module
from mooncake.reshard.weight.errors import WeightLeaseExpiredError

def stop(step):
    if step == "load.located":
        os.kill(os.getpid(), signal.SIGSTOP)

class Core:
    StoreError = _core.StoreError

    @staticmethod
    def StoreClient(*arguments, **options):
        return _core.StoreClient(*arguments, step_observer=stop, **options)

store_module._core = Core
identity = WeightIdentity("tests", "model", sys.argv[2], 1)
with WeightStore(sys.argv[1], lease_ttl_ms=200) as store:
    try:
        load_and_check(store, transformer(), LAYOUTS["tp1"], identity)
    except WeightLeaseExpiredError as error:
        print("expired:", error)
"""


def test_a_reader_that_slept_past_its_lease_is_told_so(cluster, identity):
    model = transformer()
    with WeightStore(cluster.target) as store:
        publish(store, model, LAYOUTS["tp1"], identity)
        reader = subprocess.Popen(
            [sys.executable, "-c", _SLEEPER, cluster.target, identity.revision],
            cwd=os.path.dirname(__file__),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            _, status = os.waitpid(reader.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), status

            def removed():
                try:
                    return store.weight_remove(identity)
                except WeightBusyError:
                    return None

            wait_until(removed)
            wait_until(lambda: space(cluster.target)[1] == 0)  # its memory is gone
            os.kill(reader.pid, signal.SIGCONT)
            output, _ = reader.communicate(timeout=60)
            assert output.startswith("expired: LEASE_EXPIRED"), output
            assert "lease" in output and reader.returncode == 0
        finally:
            reader.kill()


def test_a_reader_that_hangs_up_ends_the_command_quietly(cluster):
    command = subprocess.Popen(
        [sys.executable, "-m", "mooncake.cli", "--store", cluster.target, "weights", "list"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    command.stdout.close()
    errors = command.stderr.read()
    assert (command.wait(120), errors) == (0, b"")
