"""Who may call, and over what: tokens and TLS with real processes, as an operator sets them up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from certificates import Authority
from models import LAYOUTS, load_and_check, publish, transformer
from mooncake.cli.tokens import add_token, revoke_token
from mooncake.local_cluster import LocalCluster, find_program
from mooncake.reshard.weight import WeightIdentity, WeightStore
from mooncake.reshard.weight.errors import (
    WeightInvalidArgumentError,
    WeightPermissionDeniedError,
)
from polling import wait_until
from test_cli import mooncake

BLUE = WeightIdentity("team", "model", "r", 1, tenant_id="blue")
RED = WeightIdentity("team", "model", "r", 1, tenant_id="red")
# No call of these tests waits for it: what is refused is refused at once.
PATIENCE_MS = 120_000


@pytest.fixture(autouse=True)
def _no_credentials_around(monkeypatch):
    for name in ("TOKEN", "TOKEN_FILE", "TLS_CA", "TLS_CERT", "TLS_KEY"):
        monkeypatch.delenv(f"MOONCAKE_{name}", raising=False)


class Secured:
    """A token file with one token of each kind, and files with the tokens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = folder / "tokens"
        self.tokens = {
            "blue": add_token(self.table, "client", "blue", "trainer-blue"),
            "red": add_token(self.table, "client", "red", "trainer-red"),
            "node": add_token(self.table, "node", None, "node"),
            "operator": add_token(self.table, "operator", None, "admin"),
        }

    def file(self, who: str) -> Path:
        path = self.folder / f"{who}.token"
        path.write_text(self.tokens[who] + "\n")
        path.chmod(0o600)
        return path

    def cluster(self, master: tuple = (), node: tuple = ()) -> LocalCluster:
        return LocalCluster(
            nodes=1,
            capacity="128MiB",
            folder=self.folder / "cluster",
            log_level="warning",
            master_arguments=tuple(map(str, ("--token-file", self.table, *master))),
            node_arguments=tuple(map(str, ("--token-file", self.file("node"), *node))),
        )

    def open(self, cluster: LocalCluster, who: str, **options) -> WeightStore:
        return WeightStore(cluster.target, token=self.tokens[who], retry_ms=PATIENCE_MS, **options)


@pytest.fixture
def secured(tmp_path):
    return Secured(tmp_path)


def test_each_tenant_sees_its_own(secured):
    model, layout = transformer(), LAYOUTS["tp4-dp2"]
    with secured.cluster() as cluster, secured.open(cluster, "blue") as blue:
        publish(blue, model, layout, BLUE)
        load_and_check(blue, model, LAYOUTS["tp2-pp2"], BLUE)
        with secured.open(cluster, "red") as red:
            for call in (
                lambda: red.weight_is_exist(BLUE),
                lambda: red.weight_get_metadata(BLUE),
                lambda: load_and_check(red, model, LAYOUTS["tp1"], BLUE),
                lambda: red.weight_remove(BLUE),
                lambda: publish(red, model, LAYOUTS["tp1"], BLUE),
                lambda: red.weight_list(tenant_id="blue"),
            ):
                with pytest.raises(WeightPermissionDeniedError) as error:
                    call()
                assert 'client token trainer-red of tenant red may not name tenant "blue"' in str(
                    error.value
                )
            # The same names, and other content, without standing in each other's way.
            other = transformer(salt=7)
            publish(red, other, layout, RED)
            load_and_check(red, other, LAYOUTS["tp1"], RED)
            load_and_check(blue, model, LAYOUTS["tp1"], BLUE)
            listed = red.weight_list(tenant_id="red").revisions
            assert [view.metadata.identity for view in listed] == [RED]
        with secured.open(cluster, "operator") as operator:
            assert operator.weight_is_exist(BLUE) and operator.weight_is_exist(RED)
            operator.weight_remove(RED)


def test_who_has_no_token_gets_no_further(secured, monkeypatch):
    with secured.cluster() as cluster:
        with pytest.raises(WeightPermissionDeniedError, match="no token was shown"):
            WeightStore(cluster.target, retry_ms=PATIENCE_MS)
        with pytest.raises(WeightPermissionDeniedError, match="none that this Master knows"):
            WeightStore(cluster.target, token="mooncake_unknown", retry_ms=PATIENCE_MS)
        # A node is no client.
        with secured.open(cluster, "node") as store:
            with pytest.raises(WeightPermissionDeniedError, match="GetWeight is for clients and"):
                store.weight_is_exist(BLUE)
        # From the environment, the text or the file.
        monkeypatch.setenv("MOONCAKE_TOKEN", secured.tokens["blue"])
        with WeightStore(cluster.target) as store:
            assert not store.weight_is_exist(BLUE)
        monkeypatch.setenv("MOONCAKE_TOKEN_FILE", str(secured.file("red")))
        with pytest.raises(WeightInvalidArgumentError, match="a token and a token file are given"):
            WeightStore(cluster.target)
        monkeypatch.delenv("MOONCAKE_TOKEN")
        with WeightStore(cluster.target) as store:
            assert not store.weight_is_exist(RED)
        os.chmod(secured.file("red"), 0o644)
        with pytest.raises(WeightInvalidArgumentError, match="mode 0644, which lets others read"):
            WeightStore(cluster.target)


def test_a_revoked_token_is_refused_from_the_next_call_on(secured):
    with secured.cluster() as cluster, secured.open(cluster, "blue") as blue:
        publish(blue, transformer(), LAYOUTS["tp1"], BLUE)
        revoke_token(secured.table, "trainer-blue")
        with pytest.raises(WeightPermissionDeniedError, match="revoked"):
            blue.weight_is_exist(BLUE)
        # A mistake in the file revokes nobody, and is told when the operator asks.
        good = secured.table.read_text()
        secured.table.write_text(good + "and a mistake\n")
        os.kill(cluster.master.pid, signal.SIGHUP)
        wait_until(lambda: "line 5: role: expected" in cluster.master.log.read_text())
        with secured.open(cluster, "red") as red:
            assert not red.weight_is_exist(RED)
        secured.tokens["blue"] = add_token_over(secured, good)
        with secured.open(cluster, "blue") as store:
            assert store.weight_is_exist(BLUE)


def add_token_over(secured, good):
    secured.table.write_text(good)
    return add_token(secured.table, "client", "blue", "trainer-blue-2")


def test_a_node_without_a_nodes_token_ends_with_the_reason(secured):
    with secured.cluster() as cluster:
        for arguments, reason in (
            ((), "no token was shown"),
            (
                ("--token-file", secured.file("blue")),
                "RegisterNode is for nodes and operators, got client token trainer-blue",
            ),
        ):
            node = subprocess.run(
                [find_program("mooncake-node"), "--master", cluster.address, "--folder",
                 secured.folder / "stranger", "--capacity", "64MiB", *arguments],
                capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            assert node.returncode == 1
            assert "PERMISSION_DENIED" in node.stderr and reason in node.stderr


class Tls(Secured):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.authority = Authority(folder / "authority")

    def tls_cluster(self, hosts: str = "DNS:localhost,IP:127.0.0.1", days: int = 30, **more):
        identity = self.authority.issue("master", hosts, days)
        return self.cluster(
            ("--tls-cert", identity.cert, "--tls-key", identity.key, *more.get("master", ())),
            ("--tls-ca", self.authority.ca, *more.get("node", ())),
        )


@pytest.fixture
def tls(tmp_path):
    return Tls(tmp_path)


def test_publish_and_load_over_tls(tls):
    model = transformer()
    with tls.tls_cluster() as cluster:
        with tls.open(cluster, "blue", tls_ca=tls.authority.ca) as store:
            publish(store, model, LAYOUTS["tp4-dp2"], BLUE)
            load_and_check(store, model, LAYOUTS["tp2-pp2"], BLUE)
        by_name = cluster.target.replace("127.0.0.1", "localhost")
        with WeightStore(by_name, token=tls.tokens["blue"], tls_ca=str(tls.authority.ca)) as store:
            assert store.weight_is_exist(BLUE)
        with pytest.raises(WeightInvalidArgumentError, match="it speaks TLS: give tls_ca"):
            tls.open(cluster, "blue")
        stranger = Authority(tls.folder / "stranger", "Stranger")
        with pytest.raises(WeightPermissionDeniedError) as error:
            tls.open(cluster, "blue", tls_ca=stranger.ca)
        assert "its certificate is not accepted: unable to get local issuer" in str(error.value)
        assert "signed by CN = Test authority" in str(error.value)


@pytest.mark.parametrize(
    ("hosts", "days", "reason"),
    [
        ("IP:127.0.0.1", -1, "certificate has expired: on "),
        ("DNS:master.example", 30, "asked for 127.0.0.1, it names DNS:master.example"),
    ],
    ids=["expired", "another host"],
)
def test_a_certificate_that_is_not_the_masters(tls, hosts, days, reason):
    cluster = tls.tls_cluster(hosts, days)
    try:
        cluster.address = cluster.master.start().group(1)
        with pytest.raises(WeightPermissionDeniedError) as error:
            tls.open(cluster, "blue", tls_ca=tls.authority.ca)
        assert reason in str(error.value)
        with pytest.raises(RuntimeError) as error:  # it ends, and says why
            cluster.node_program(0).start()
        assert "PERMISSION_DENIED" in str(error.value) and reason in str(error.value)
        warned = "nobody will accept the certificate" in cluster.master.log.read_text()
        assert warned == (days < 0)
    finally:
        cluster.stop()


def test_a_master_that_asks_for_certificates(tls, monkeypatch):
    own = tls.authority.issue("caller", "DNS:caller")
    shown = ("--tls-cert", own.cert, "--tls-key", own.key)
    with tls.tls_cluster(master=("--tls-client-ca", tls.authority.ca), node=shown) as cluster:
        with pytest.raises(WeightPermissionDeniedError, match="none was shown"):
            tls.open(cluster, "blue", tls_ca=tls.authority.ca)
        monkeypatch.setenv("MOONCAKE_TLS_CERT", str(own.cert))
        monkeypatch.setenv("MOONCAKE_TLS_KEY", str(own.key))
        with tls.open(cluster, "blue", tls_ca=tls.authority.ca) as store:
            publish(store, transformer(), LAYOUTS["tp1"], BLUE)


def test_other_hosts_are_not_served_openly_by_accident(tmp_path):
    def master(*arguments):
        return LocalCluster(
            nodes=0, folder=tmp_path / "cluster", log_level="warning", master_arguments=arguments
        )

    everywhere = ("--listen", "0.0.0.0:0")
    with pytest.raises(RuntimeError, match="without asking who calls"):
        master(*everywhere).start()
    assert not (tmp_path / "cluster" / "master").exists()
    with master(*everywhere, "--insecure") as cluster:
        with WeightStore(cluster.target.replace("0.0.0.0", "127.0.0.1")) as store:
            assert not store.weight_is_exist(BLUE)
    with pytest.raises(WeightInvalidArgumentError, match="the token is not sent to 10.255.255.1"):
        WeightStore("mooncake://10.255.255.1:1", token="t", retry_ms=PATIENCE_MS)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--token-file", "{}/absent"), "absent"),
        (("--tls-cert", "{}/absent", "--tls-key", "{}/absent"), "absent"),
        (("--tls-cert", "{}/text"), "tls_cert and tls_key go together"),
        (("--tls-cert", "{}/text", "--tls-key", "{}/text"), "no certificate in PEM form"),
        (("--token-file", "{}/text"), 'line 1: expected "mooncake-tokens 1", got "no pem"'),
    ],
)
def test_a_master_says_what_is_wrong_with_its_files(tmp_path, arguments, reason):
    (tmp_path / "text").write_text("no pem\n")
    (tmp_path / "text").chmod(0o600)
    given = [argument.format(tmp_path) for argument in arguments]
    master = subprocess.run(
        [find_program("mooncake-master"), "--folder", tmp_path / "master", *given],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert master.returncode == 2 and reason in master.stderr


def test_an_embedded_store_takes_no_token(tmp_path, monkeypatch):
    target = f"file://{tmp_path / 'store'}"
    with pytest.raises(WeightInvalidArgumentError, match="takes no token"):
        WeightStore(target, token="t")
    with pytest.raises(WeightInvalidArgumentError, match="token must be a str") as error:
        WeightStore(target, token=b"secret")
    assert "secret" not in str(error.value)
    # What is around for clusters is none of its business.
    monkeypatch.setenv("MOONCAKE_TOKEN", "t")
    monkeypatch.setenv("MOONCAKE_TLS_CA", str(tmp_path / "absent"))
    with WeightStore(target) as store:
        assert not store.weight_is_exist(BLUE)


def test_tokens_from_the_command_line(tmp_path):
    table = tmp_path / "tokens"
    token = mooncake("tokens", "new", table, "--role", "client", "--tenant", "blue/1").strip()
    assert token.startswith("mooncake_") and token not in table.read_text()
    assert table.stat().st_mode & 0o777 == 0o600
    node = mooncake("--json", "tokens", "new", table, "--role", "node", "--name", "n0")
    secret = tmp_path / "node.token"
    secret.write_text(json.loads(node)["token"])
    secret.chmod(0o600)
    listed = json.loads(mooncake("tokens", "list", table, "--json"))
    assert [(t["role"], t["tenant"]) for t in listed] == [("client", "blue/1"), ("node", None)]
    assert "n0" in mooncake("tokens", "list", table)
    assert "name: n0 stands twice" in mooncake(
        "tokens", "new", table, "--role", "node", "--name", "n0", status=1
    )
    assert "give --tenant" in mooncake("tokens", "new", table, "--role", "client", status=1)
    assert "got blue" in mooncake(
        "tokens", "new", table, "--role", "operator", "--tenant", "blue", status=1
    )
    own = tmp_path / "own.token"
    own.write_text(token)
    own.chmod(0o600)
    with LocalCluster(
        nodes=1,
        capacity="64MiB",
        folder=tmp_path / "cluster",
        log_level="warning",
        master_arguments=("--token-file", str(table)),
        node_arguments=("--token-file", str(secret)),
    ) as cluster:
        status = ("--store", cluster.target, "status")
        assert "no token was shown" in mooncake(*status, status=1)
        assert "alive" in mooncake("--token-file", own, *status)
        assert "alive" in mooncake(*status, "--token-file", own)
        assert "alive" in mooncake(*status, MOONCAKE_TOKEN_FILE=str(own))
        assert "alive" in mooncake(*status, "--token-file", own, MOONCAKE_TOKEN="another")
        name = listed[0]["name"]
        mooncake("tokens", "revoke", table, name)
        assert "revoked" in mooncake(*status, "--token-file", own, status=1)
    assert "has no token named" in mooncake("tokens", "revoke", table, name, status=1)


def test_ordinary_objects_keep_to_their_tenant(secured, monkeypatch):
    from mooncake.store import MooncakeDistributedStore

    def opened(who, tenant, lent=0):
        monkeypatch.setenv("MOONCAKE_TOKEN", secured.tokens[who])
        store = MooncakeDistributedStore()
        status = store.setup(
            "127.0.0.1", "P2PHANDSHAKE", lent, 16 << 20, "tcp", "", cluster.address,
            tenant_id=tenant,
        )  # fmt: skip
        return store, status

    with secured.cluster() as cluster:
        # Memory for everybody's objects is lent with a node's token, not with a tenant's.
        assert opened("blue", "blue", lent=16 << 20)[1] == -1
        monkeypatch.setenv("MOONCAKE_NODE_TOKEN", secured.tokens["node"])
        blue, status = opened("blue", "blue", lent=16 << 20)
        assert status == 0 and blue.put("key", b"blue's") == 0
        red, status = opened("red", "red")
        assert status == 0 and red.get("key") == b""
        assert red.put("key", b"red's") == 0
        stranger, status = opened("red", "blue")
        assert status == 0
        assert stranger.is_exist("key") < 0 and stranger.get("key") == b""
        assert stranger.put("other", b"x") < 0 and stranger.remove_all() <= 0
        assert blue.get("key") == b"blue's" and red.get("key") == b"red's"
        for store in (blue, red, stranger):
            store.close()
