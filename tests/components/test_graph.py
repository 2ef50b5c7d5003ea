"""The whole program as a graph: order, the options of each leaf, the cascade, providers, secrets."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import pulumi
import pytest

from components.settings import Secrets, advise
from tests import samples
from tests.graph import API_KEY, RAY_TOKEN, Graph, deploy, is_secret

HEAD, WORKER, VLLM = "Container head", "Container worker", "Container vllm"


@pytest.fixture(scope="module")
def pair() -> Graph:
    return deploy(samples.config())


def test_order_of_what_must_precede_a_stop(pair: Graph) -> None:
    before = pair.needs(HEAD)
    for step in (
        "Command preflight-head",
        "Command preflight-worker",
        "Command check-arguments",
        "Command link-head",
        "Command link-worker",
        "Command image-head",
        "Command image-worker",
        "Command model-head",
        "Command model-worker",
        "Command ready-to-stop-head",
        "Command ready-to-stop-worker",
        "Command check-engine",
    ):
        assert step in before, step
    assert before <= pair.needs(WORKER)
    assert before <= pair.needs(VLLM)


def test_arguments_are_checked_before_anything_is_changed(pair: Graph) -> None:
    for change in (
        "Command fabric-key",
        "Command fabric-peer-worker",
        "Command image-worker",
        "Command link-head",
    ):
        assert "Command check-arguments" in pair.needs(change), change
    assert "Command image-head" in pair.needs("Command check-arguments")
    assert "Command preflight-worker" in pair.needs("Command check-arguments")


def test_with_a_registry_for_all_each_node_pulls_for_itself(pair: Graph) -> None:
    configuration = samples.config()
    configuration["image"]["distribution"] = "registry"
    graph = deploy(configuration)
    pull = graph["Command image-worker"]
    assert pull.inputs["connection"] == pair["Command preflight-worker"].inputs["connection"]
    assert f"REF={configuration['image']['ref']}\n" in pull.inputs["stdin"]
    assert graph["RemoteImage pulled-worker"].provider.split("::")[-2] == "docker-worker"
    assert {"Command check-arguments", "Command link-worker"} <= graph.needs(pull.key)
    assert pull.key in graph.needs(HEAD)
    assert "RemoteImage pulled-worker" not in pair.resources
    for node in ("head", "worker"):
        assert graph[f"RemoteImage pulled-{node}"].inputs["keepLocally"] is True, (
            "an old image goes with a new pin"
        )


def test_every_load_finds_the_page_cache_dropped(pair: Graph) -> None:
    for node in ("head", "worker"):
        step = pair[f"Command drop-caches-{node}"]
        assert step.inputs["triggers"][1] == "id-of-vllm"
        assert step.inputs["connection"] == pair[f"Command preflight-{node}"].inputs["connection"]
    without = deploy(samples.config(container={"gpus": "none"}))
    assert not [key for key in without.resources if "drop-caches" in key]


def test_what_destroy_may_remove_goes_after_the_containers_and_before_the_network(pair: Graph) -> None:
    for node in ("head", "worker"):
        step = f"Command on-destroy-{node}"
        assert step in pair.needs(HEAD)
        assert step in pair.needs(WORKER)
        assert {"Command link-head", "Command network-worker"} <= pair.needs(step)
        assert "MODEL=''\n" in pair[step].inputs["stdin"]
        assert "TAG=''\n" in pair[step].inputs["stdin"]
    configuration = samples.config(
        model={"repo": "a/b", "revision": "0" * 40, "root": "/models", "removeOnDestroy": True}
    )
    configuration["image"]["removeOnDestroy"] = True
    asked = deploy(configuration)["Command on-destroy-worker"].inputs["stdin"]
    assert f"MODEL=/models/a--b/{'0' * 40}\n" in asked
    assert "TAG=spark-vllm/vllm:abababababab\n" in asked


def test_a_ray_without_a_token_is_warned_of() -> None:
    settings = samples.settings()
    nothing = Secrets(None, None, None, None)
    assert "rayToken" in advise(settings, nothing)[0]
    assert advise(settings, replace(nothing, ray_token=pulumi.Output.secret("x"))) == []
    assert advise(samples.settings(1), nothing) == []
    with mock.patch("pulumi.log.warn") as warn:
        deploy(samples.config(), preview=True, secrets=False)
    assert any("rayToken" in str(call) for call in warn.call_args_list)


def test_what_is_slow_runs_side_by_side(pair: Graph) -> None:
    assert "Command model-worker" not in pair.needs("Command image-worker")
    assert "Command image-worker" not in pair.needs("Command model-worker")
    trio = deploy(trio_config())
    assert "Command link-worker" not in trio.needs("Command link-worker2")
    assert "Command link-worker2" not in trio.needs("Command link-worker")
    assert "Container worker" not in trio.needs("Container worker2")


def trio_config(**changes: object) -> samples.Config:
    vllm = {"servedModelName": "tiny", "pipelineParallelSize": 3, **changes}
    return samples.config(3, vllm=vllm)


def test_the_heads_link_check_stands_for_all(pair: Graph) -> None:
    assert "Command link-worker" in pair.needs("Command link-head")


def test_who_left_is_drained_before_a_workers_container_and_the_check(pair: Graph) -> None:
    drain = "Command drain"
    assert HEAD in pair.needs(drain)
    assert drain in pair.needs(WORKER)
    assert drain in pair.needs("Command cluster-check")
    stdin = pair[drain].inputs["stdin"]
    assert "EXPECT=head@192.168.200.12,worker@192.168.200.13\n" in stdin
    assert "--drain --missing-ok" in stdin


def test_the_graph_grows_no_faster_than_the_nodes() -> None:
    for executor in ("ray", "mp"):
        resources, edges = zip(*(size_of(executor, nodes) for nodes in (4, 8, 16)), strict=True)
        assert resources[2] - resources[1] == 2 * (resources[1] - resources[0])
        assert edges[2] - edges[1] == 2 * (edges[1] - edges[0])


def size_of(executor: str, nodes: int) -> tuple[int, int]:
    configuration = samples.config(nodes, vllm={"servedModelName": "tiny", "executor": executor})
    resources = deploy(configuration, preview=True).resources.values()
    return len(resources), sum(len(each.dependencies) for each in resources)


def test_ray_stands_before_vllm_and_the_proof_comes_last(pair: Graph) -> None:
    assert HEAD in pair.needs(WORKER)
    assert {HEAD, WORKER, "Command cluster-check"} <= pair.needs(VLLM)
    assert {VLLM, "Command ready"} <= pair.needs("Command smoke-test")


@pytest.mark.parametrize("key", [HEAD, WORKER, VLLM])
def test_every_container_is_deleted_first_and_replaced_when_dead(pair: Graph, key: str) -> None:
    assert pair[key].delete_before_replace
    assert pair[key].replace_on_changes == ("mustRun", "mounts")
    assert pair[key].inputs["destroyGraceSeconds"] > 0
    assert pair[key].inputs["restart"] == "on-failure"
    assert "replaceWith" not in pair[key].inputs


@pytest.mark.parametrize("key", [HEAD, WORKER, VLLM])
def test_every_container_is_private_and_bounded(pair: Graph, key: str) -> None:
    inputs = pair[key].inputs
    assert "privileged" not in inputs
    assert inputs["securityOpts"] == ["no-new-privileges", "label=disable"]
    assert inputs["networkMode"] == inputs["ipcMode"] == inputs["pidMode"] == "host"
    assert inputs["entrypoints"] == ["/bin/bash", "/spark/entry.sh"]
    assert inputs["devices"] == [
        {"hostPath": "/dev/infiniband", "containerPath": "/dev/infiniband", "permissions": "rwm"}
    ]
    assert inputs["ulimits"] == [{"name": "memlock", "soft": -1, "hard": -1}]
    assert inputs["image"] == "spark-vllm/vllm:abababababab"
    assert {label["label"] for label in inputs["labels"]} == {
        "spark-vllm.project",
        "spark-vllm.stack",
        "spark-vllm.node",
    }


def test_the_tag_carries_the_cascade(pair: Graph) -> None:
    tags = {key: pair[key].inputs["logOpts"]["tag"].split("/") for key in (HEAD, WORKER, VLLM)}
    assert tags[HEAD][2:] == []
    assert tags[WORKER][2:] == ["id-of-head"]
    assert tags[VLLM][2:] == ["id-of-head", "id-of-worker"[:12]]


def tags_of(graph: Graph) -> dict[str, str]:
    return {key: graph[key].inputs["logOpts"]["tag"] for key in (HEAD, WORKER, VLLM)}


def test_a_rail_of_one_node_moves_that_nodes_tags_alone(pair: Graph) -> None:
    changed = samples.config()
    changed["nodes"][1]["rails"][1]["address"] = "192.168.201.99/24"
    before, after = tags_of(pair), tags_of(deploy(changed))
    assert after[WORKER] != before[WORKER]
    assert after[HEAD] == before[HEAD]
    assert after[VLLM] == before[VLLM]


def test_the_mtu_moves_every_tag(pair: Graph) -> None:
    after = tags_of(deploy(samples.config(network={"mtu": 1500})))
    assert all(after[key] != tag for key, tag in tags_of(pair).items())


def test_each_node_has_its_own_provider(pair: Graph) -> None:
    providers = {key: pair[key].provider.split("::")[-2] for key in (HEAD, WORKER, VLLM)}
    assert providers == {HEAD: "docker-head", WORKER: "docker-worker", VLLM: "docker-head"}
    worker = pair["docker docker-worker"].inputs
    assert worker["context"] == ""
    assert any("ProxyCommand=ssh " in option for option in json.loads(worker["sshOpts"]))


def test_secrets_are_marked_and_stand_nowhere_else(pair: Graph) -> None:
    for key, resource in pair.resources.items():
        clear = {name: value for name, value in resource.inputs.items() if not is_secret(value)}
        text = json.dumps(_without_secrets(clear))
        assert API_KEY not in text, key
        assert RAY_TOKEN not in text, key
    assert API_KEY in json.dumps(pair[VLLM].inputs["uploads"])
    assert not any("KEY" in value for value in pair[VLLM].inputs["envs"] if isinstance(value, str))


def _without_secrets(value: object) -> object:
    if is_secret(value):
        return "[secret]"
    if isinstance(value, dict):
        return {key: _without_secrets(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_secrets(each) for each in value]
    return value


def test_one_node_has_neither_ray_nor_fabric() -> None:
    solo = deploy(samples.config(1))
    assert set(solo.of_type("Container")) == {"vllm"}
    names = set(solo.of_type("Command"))
    assert not any(name.startswith(("link", "fabric", "cluster")) for name in names)
    assert not any("executor-backend" in part for part in solo[VLLM].inputs["command"])


def test_commands_put_no_value_on_a_command_line(pair: Graph) -> None:
    for name, command in pair.of_type("Command").items():
        for action in ("create", "update", "delete"):
            line = command.inputs.get(action, "cat >/dev/null")
            assert line == "cat >/dev/null" or line.startswith("timeout -k 10 "), (name, line)
            assert "'" not in line


def test_a_command_has_triggers_or_a_delete_and_never_both(pair: Graph) -> None:
    for name, command in pair.of_type("Command").items():
        assert ("triggers" in command.inputs) != ("delete" in command.inputs), name
        if "triggers" in command.inputs:
            assert command.inputs["update"] == "cat >/dev/null", name


def test_containers_take_nothing_that_a_command_printed(pair: Graph) -> None:
    for key in (HEAD, WORKER, VLLM):
        assert "load_seconds" not in json.dumps(pair[key].inputs)
        assert "AAAA" not in json.dumps(pair[key].inputs["command"])


def test_an_unpinned_stack_can_be_previewed_but_not_deployed() -> None:
    unpinned = samples.config(image={"ref": "registry.invalid/vllm:v1"})
    assert "Container vllm" in deploy(unpinned, preview=True).resources
    with pytest.raises(pulumi.RunError, match="has no digest"):
        deploy(unpinned)


def test_an_api_without_a_key_is_refused_unless_it_says_so() -> None:
    with pytest.raises(pulumi.RunError, match="without a key"):
        deploy(samples.config(), secrets=False)
    said = samples.config(vllm={"servedModelName": "tiny", "allowUnauthenticated": True})
    assert "Container vllm" in deploy(said, secrets=False).resources
    loopback = samples.config(vllm={"servedModelName": "tiny", "host": "127.0.0.1"})
    assert "Container vllm" in deploy(loopback, secrets=False).resources


def test_a_mistake_is_one_sentence_that_names_the_file() -> None:
    with pytest.raises(
        pulumi.RunError, match=r"Pulumi.test.yaml: spark-vllm:vlm is not a key: did you mean vllm"
    ):
        deploy(samples.config(vlm={}))


@pytest.fixture(scope="module")
def ranks() -> Graph:
    return deploy(samples.config(vllm={"servedModelName": "tiny", "executor": "mp"}))


def test_under_mp_the_workers_container_is_the_same_resource(ranks: Graph, pair: Graph) -> None:
    assert set(ranks.of_type("Container")) == {"worker", "vllm"}
    assert ranks[WORKER].inputs["name"] == "vllm-worker"
    assert pair[WORKER].inputs["name"] == "ray-worker"
    assert ranks[WORKER].parent == pair[WORKER].parent
    assert "--headless" in ranks[WORKER].inputs["command"]
    assert WORKER in ranks.needs(VLLM)
    assert "Command cluster-check" not in ranks.resources
    assert "Command drain" not in ranks.resources


def test_under_mp_every_rank_is_waited_for_and_holds_on_to_the_others(ranks: Graph, pair: Graph) -> None:
    assert {"Command ready", "Command ready-worker"} <= ranks.needs("Command smoke-test")
    assert {WORKER, VLLM} <= ranks.needs("Command ready-worker")
    assert "Command ready-worker" not in pair.resources
    for key in (WORKER, VLLM):
        assert "/spark/ranks.py" in json.dumps(ranks[key].inputs["uploads"])
        assert "SPARK_LIFELINE=192.168.200.12:6386" in ranks[key].inputs["envs"]
    assert "6386 the ranks' lifeline" in _clear(ranks["Command ready-to-stop-head"].inputs["stdin"])


def _clear(stdin: str) -> str:
    return stdin.replace("'\"'\"'", "'")


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config["vllm"].update({"args": {"max-num-seqs": 3}}),
        lambda config: config["nodes"][0].update({"env": {"A": "1"}}),
        lambda config: config["nodes"][1].update({"env": {"A": "1"}}),
        lambda config: config["vllm"].update({"servedModelName": "other"}),
        lambda config: config["nodes"][1].update({"name": "spare"}),
    ],
    ids=["a flag", "env of rank 0", "env of rank 1", "served name", "a name"],
)
def test_under_mp_every_rank_follows_any_ranks_change(
    ranks: Graph, change: Callable[[samples.Config], None]
) -> None:
    changed = samples.config(vllm={"servedModelName": "tiny", "executor": "mp"})
    change(changed)
    after = deploy(changed)
    worker = next(key for key in after.resources if key in (WORKER, "Container spare"))
    for key, before in ((worker, WORKER), (VLLM, VLLM)):
        assert after[key].inputs["logOpts"]["tag"] != ranks[before].inputs["logOpts"]["tag"]
        assert API_KEY in json.dumps(after[key].inputs["uploads"])


def test_both_hops_of_every_connection_are_pinned(pair: Graph) -> None:
    head, worker = (samples.host_key(name) for name in ("head", "worker"))
    for name, command in pair.of_type("Command").items():
        text = json.dumps(command.inputs["connection"])
        assert is_secret(command.inputs["connection"]), name
        assert json.dumps(head) in text, name
        assert (json.dumps(worker) in text) == ('"proxy"' in text), name


def test_the_docker_providers_trust_the_pinned_keys_and_no_file(pair: Graph) -> None:
    for name, hops in (("head", 1), ("worker", 2)):
        options = json.loads(pair[f"docker docker-{name}"].inputs["sshOpts"])
        text = " ".join(options)
        assert options[:2] == ["-F", "none"]
        assert text.count("StrictHostKeyChecking=yes") == hops
        assert "StrictHostKeyChecking=no" not in text
        assert (
            text.count("UserKnownHostsFile=/dev/null") == text.count("GlobalKnownHostsFile=/dev/null") == hops
        )
        assert f"KnownHostsCommand=/bin/echo spark-vllm-{name} {samples.host_key(name)}" in options
        assert text.count(f"spark-vllm-head {samples.host_key('head')}") == 1


def test_the_heads_own_values_are_not_copied_to_other_nodes(pair: Graph) -> None:
    uploads = json.dumps(pair[VLLM].inputs["uploads"])
    assert "/spark/config/ray_non_carry_over_env_vars.json" in uploads
    for variable in (
        "VLLM_HOST_IP",
        "GLOO_SOCKET_IFNAME",
        "NCCL_SOCKET_IFNAME",
        "NCCL_IB_HCA",
        "VLLM_API_KEY",
    ):
        assert variable in uploads, variable
