"""Bad input: every key with every wrong type, and no value that a shell or a container would see otherwise.

The keys come from the models' own JSON schema, so that a new key is covered by itself.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from components.commandline import environment, rank_env, ray_args, ray_env, serve_args, serve_env
from components.remote import compose, text
from components.settings import Settings, parse
from tests import samples
from tests.graph import Graph, deploy, is_secret

Schema = dict[str, Any]
Place = tuple[str | int, ...]
SCHEMA = Settings.model_json_schema(by_alias=True, mode="validation")
HUB = {"repo": "a/b", "root": "/models", "revision": "1" * 40}
KINDS: dict[str, Any] = {
    "string": "word",
    "integer": 7,
    "number": 0.5,
    "boolean": True,
    "array": [{}],
    "object": {"a": {"b": []}},
    "null": None,
}


def leaves(schema: Schema, path: Place = ()) -> Iterator[tuple[Place, Schema]]:
    """Every key that holds a value, where it stands in a configuration, and its schema."""
    schema = resolve(schema)
    variants = schema.get("oneOf") or [
        each for each in schema.get("anyOf", ()) if resolve(each) != {"type": "null"}
    ]
    if len(variants) > 1:
        for variant in variants:
            yield from leaves(variant, path)
    elif "properties" in schema:
        for key, value in schema["properties"].items():
            yield from leaves(value, (*path, key))
    elif "properties" in resolve(schema.get("items", {})):
        yield from leaves(schema["items"], (*path, 0))
    else:
        yield path, schema


def resolve(schema: Schema) -> Schema:
    """A schema, followed to where it is defined."""
    reference = schema.get("$ref", "")
    found: Schema = SCHEMA["$defs"][reference.rpartition("/")[2]] if reference else schema
    return found


def kinds(schema: Schema) -> set[str]:
    """The types that a key takes."""
    if "anyOf" in schema:
        return {kind for each in schema["anyOf"] for kind in kinds(resolve(each))}
    found = {schema["type"]} if "type" in schema else {"string"}
    return found | {"integer"} if "number" in found else found


LEAVES = dict(leaves(SCHEMA))
OBJECTS = sorted({path[:-1] for path in LEAVES if len(path) > 1}, key=str)


def named(path: Place) -> str:
    """A key as messages name it."""
    return "spark-vllm:" + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")


def changed(path: Place, value: object) -> samples.Config:
    """A configuration that is right but for one value."""
    configuration = samples.config()
    if path[:2] != ("model", "directory"):
        configuration["model"] = dict(HUB)
    target: Any = configuration
    for part in path[:-1]:
        target = target.setdefault(part, {}) if isinstance(target, dict) else target[part]
    target[path[-1]] = value
    return configuration


def refusal(configuration: samples.Config) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is what the test reads
        parse(samples.raw(configuration))
    return str(caught.value)


def ids(path: object) -> str:
    return named(path) if isinstance(path, tuple) else ""


def test_the_schema_is_walked_to_its_ends() -> None:
    assert {
        ("nodes", 0, "rails", 0, "address"),
        ("vllm", "args"),
        ("model", "directory"),
        ("model", "repo"),
    } <= {*LEAVES}


@pytest.mark.parametrize("path", LEAVES, ids=ids)
def test_a_wrong_type_is_refused_by_its_key(path: Place) -> None:
    wrong = {kind: value for kind, value in KINDS.items() if kind not in kinds(LEAVES[path])}
    assert wrong
    for kind, value in wrong.items():
        said = refusal(changed(path, value))
        assert named(path) in said, kind
        assert "\n" not in said.strip(), "one mistake is one line"
        assert "pydantic" not in said


BOUNDED = {
    (path, bound): (each[bound], step)
    for path, schema in LEAVES.items()
    for each in [schema, *schema.get("anyOf", ())]
    for bound, step in (("minimum", -1), ("maximum", 1), ("exclusiveMinimum", 0))
    if bound in each
}


@pytest.mark.parametrize(("path", "bound"), BOUNDED)
def test_a_value_out_of_range_is_refused_by_its_key(path: Place, bound: str) -> None:
    limit, step = BOUNDED[path, bound]
    said = refusal(changed(path, limit + step))
    assert named(path) in said
    assert str(limit) in said, "what would be right is told"
    assert named(path) in refusal(changed(path, step * 10**30 if step else -1))


@pytest.mark.parametrize("path", OBJECTS, ids=ids)
def test_an_unknown_key_is_refused_at_every_place(path: Place) -> None:
    said = refusal(changed((*path, "somethingElse"), 1))
    assert f"{named((*path, 'somethingElse'))} is not a key" in said


STRINGS = [path for path, schema in LEAVES.items() if "string" in kinds(schema)]
TRAPS = [
    "",
    " ",
    "\n",
    "-rf",
    "--x",
    "a b",
    "$(id)",
    "`id`",
    "'",
    '"',
    "a\nb",
    "a;b",
    "ü",
    "x" * 200_000,
    "\0",
]


@pytest.mark.parametrize("path", STRINGS, ids=ids)
def test_a_trap_is_refused_by_its_key_or_kept_as_it_is(path: Place) -> None:
    for trap in (*TRAPS, *("/models" + each for each in TRAPS)):
        try:
            settings = parse(samples.raw(changed(path, trap)))
        except ValueError as error:
            assert named(path) in str(error) or path[0] == "nodes", error  # noqa: PT017
            assert len(str(error)) < 1000, "a message is read by a person"  # noqa: PT017
            continue
        kept: Any = settings.model_dump(mode="json", by_alias=True)
        for part in path:
            kept = kept[part]
        assert kept == trap.rstrip("/"), repr(trap)
        assert "\0" not in trap
        assert len(trap) < 200_000


@pytest.mark.parametrize(
    ("path", "written", "words"),
    [
        (("network", "manage"), "on", "spark-vllm:network.manage: input should be a valid boolean"),
        (("network", "manage"), "off", "spark-vllm:network.manage: input should be a valid boolean"),
        (("network", "mtu"), "9e3", "spark-vllm:network.mtu: input should be a valid integer"),
        (("vllm", "port"), "8000.5", "spark-vllm:vllm.port: input should be a valid integer"),
        (("vllm", "port"), "!!str 8000", "spark-vllm:vllm.port: input should be a valid integer"),
        (("vllm", "port"), "~", "spark-vllm:vllm.port"),
        (("vllm", "servedModelName"), "1.5", "spark-vllm:vllm.servedModelName must be a string: put 1.5"),
        (("vllm", "servedModelName"), "true", "spark-vllm:vllm.servedModelName must be a string: put true"),
        (("vllm", "env"), "{A: yes}", ""),
        (("vllm", "env"), "{A: 010}", "spark-vllm:vllm.env.A must be a string"),
        (("vllm", "env"), "{A: 1e3}", "spark-vllm:vllm.env.A must be a string: put 1000.0 in quotes"),
        (
            ("model", "revision"),
            "1234567",
            "spark-vllm:model.revision must be a string: put 1234567 in quotes",
        ),
    ],
)
def test_what_yaml_makes_of_a_value_is_told_in_words(path: Place, written: str, words: str) -> None:
    configuration = changed(path, YAML(typ="safe").load(written))
    if words:
        assert words in refusal(configuration)
    else:
        # With YAML 1.2, which Pulumi and this file read, these are words.
        assert parse(samples.raw(configuration)).vllm.env == {"A": written[4:-1]}


CARRIED = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
NAMES = st.from_regex(r"\AX_[A-Z]{1,8}\Z")


@given(st.dictionaries(NAMES, CARRIED, min_size=1, max_size=6))
def test_no_input_reaches_a_shell_unquoted(inputs: dict[str, str]) -> None:
    show = "".join(f'printf "%s\\0" "${name}"\n' for name in sorted(inputs))
    script = compose("lib.sh", inputs) + show
    done = subprocess.run(["bash", "-s"], input=script.encode(), capture_output=True, check=True)
    assert done.stdout.decode() == "".join(f"{inputs[name]}\0" for name in sorted(inputs))


@given(
    CARRIED.filter(bool), st.dictionaries(NAMES, CARRIED, max_size=4), CARRIED, st.lists(CARRIED, max_size=3)
)
def test_what_is_accepted_is_what_the_processes_get(
    name: str, env: dict[str, str], flag: str, values: list[str]
) -> None:
    configuration = samples.config(
        vllm={"servedModelName": name, "args": {"words": flag, "object": {"a": values}}, "env": env},
        ray={"env": env},
    )
    configuration["nodes"][1] |= {"env": env, "rayArgs": {"words": flag}}
    settings = parse(samples.raw(configuration))
    worker = settings.workers[0]
    arguments = serve_args(settings)
    assert f"--served-model-name={name}" in arguments
    assert f"--words={flag}" in arguments
    assert f"--words={flag}" in ray_args(settings, worker)
    (given_object,) = [each for each in arguments if each.startswith("--object=")]
    assert json.loads(given_object.removeprefix("--object=")) == {"a": values}
    for made in (
        serve_env(settings, settings.head, token=True),
        ray_env(settings, worker, token=True),
        rank_env(settings, worker),
    ):
        assert {f"{key}={value}" for key, value in env.items()} <= set(environment(made))


def test_nothing_is_run_that_stands_in_a_value(tmp_path: Path) -> None:
    """All scripts of a deployment, and those that travel inside others, with a command in every free text."""
    run = f"$(touch {tmp_path}/run)`touch {tmp_path}/run`'\"; touch {tmp_path}/run #"
    configuration = samples.config(
        model={"directory": f"/home/a b/{run}/tiny"},
        vllm={"servedModelName": run, "args": {"words": run}, "env": {"WORDS": run}, "toolCallParser": run},
        container={"devices": [f"/dev/{run}"]},
    )
    graph = deploy(configuration)
    scripts = [stdin for _, stdin in sent(graph)]
    assert len(scripts) > len(("head", "worker"))
    for script in scripts:
        assignments, _, program = script.partition(text("lib.sh"))
        assert program
        done = subprocess.run(
            ["bash", "-s"],
            input=f'{assignments}\nprintf "%s" "${{RECEIVER-}}${{ROOT-}}"',
            capture_output=True,
            text=True,
            check=True,
        )
        if done.stdout:
            subprocess.run(
                ["bash", "-s"], input=done.stdout.partition(text("lib.sh"))[0], text=True, check=True
            )
    assert list(tmp_path.iterdir()) == []


def sent(graph: Graph) -> Iterator[tuple[str, str]]:
    """What each Command of a deployment sends to its node."""
    for name, command in graph.of_type("Command").items():
        stdin = command.inputs["stdin"]
        yield name, stdin["value"] if is_secret(stdin) else stdin
