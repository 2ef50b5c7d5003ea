"""Write the reference page and the JSON schema of the configuration from the settings themselves.

`python -m scripts.reference` writes docs/configuration.md and docs/stack.schema.json; with `--check` it
writes nothing and fails if they differ.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from components.settings import OWNED_FLAGS, PROJECT, SECRET_KEYS, Settings

DOCS = Path(__file__).parent.parent / "docs"
SECRETS = {
    "apiKey": "Key that clients of the API must show. Required unless the API listens on loopback, or "
    "`vllm.allowUnauthenticated` says otherwise.",
    "rayToken": "Token that Ray's processes show each other (Ray >= 2.52).",
    "hubToken": "Token for models of the hub that ask for one.",
    "registryPassword": "Password or token of `image.registryUser`, for the pull; kept on no node.",
}
Schema = dict[str, Any]


def schema() -> Schema:
    """JSON schema of a stack file, for editors."""
    settings = Settings.model_json_schema(by_alias=True, mode="validation")
    definitions = settings.pop("$defs")
    properties = {f"{PROJECT}:{key}": value for key, value in settings["properties"].items()}
    secrets = {
        f"{PROJECT}:{key}": {
            "type": "object",
            "properties": {"secure": {"type": "string"}},
            "required": ["secure"],
            "description": SECRETS[key],
        }
        for key in SECRET_KEYS
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Stack file of {PROJECT}",
        "type": "object",
        "properties": {
            "config": {
                "type": "object",
                "properties": properties | secrets,
                "required": [f"{PROJECT}:{key}" for key in settings["required"]],
                "patternProperties": {f"^(?!{PROJECT}:)": {}},
                "additionalProperties": False,
            }
        },
        "$defs": definitions,
    }


def page() -> str:
    """The reference page, in Markdown."""
    settings = Settings.model_json_schema(by_alias=True, mode="validation")
    parts = [
        "# Configuration",
        "",
        (
            "Every key of a stack file, made from `components/settings.py` by `make docs`. Keys stand below "
            f"`config:` as `{PROJECT}:<section>`; an unknown key, a wrong type or a value out of range is "
            "refused before anything is touched."
        ),
    ]
    for key, value in settings["properties"].items():
        parts += ["", f"## {key}", ""]
        parts += _section(value, settings["$defs"], key in settings["required"])
    parts += [
        "",
        "## Secrets",
        "",
        "Set with `pulumi config set --secret KEY`; in clear they are refused.",
        "",
    ]
    parts += ["| key | meaning |", "|---|---|", *(f"| `{key}` | {SECRETS[key]} |" for key in SECRET_KEYS)]
    parts += ["", "## Flags that follow from a key", ""]
    parts += ["`vllm.args` takes any flag of `vllm serve` but these:", "", "| flag | key |", "|---|---|"]
    parts += [f"| `--{flag}` | `{owner}` |" for flag, owner in OWNED_FLAGS.items()]
    return "\n".join(parts) + "\n"


def _section(value: Schema, definitions: dict[str, Schema], required: bool) -> list[str]:
    lines: list[str] = []
    variants = value.get("oneOf") or value.get("anyOf") or [value]
    many = "items" in value
    for variant in [value["items"]] if many else variants:
        model = definitions[variant["$ref"].rpartition("/")[2]]
        lines += [_sentence(model.get("description", ""), required=required, many=many), ""]
        lines += [
            "| key | type | default | meaning |",
            "|---|---|---|---|",
            *_rows(model, definitions, ""),
            "",
        ]
    return lines[:-1]


def _sentence(text: str, *, required: bool, many: bool) -> str:
    kind = "A list. " if many else ""
    return f"{kind}{text} {'Required.' if required else 'Optional.'}"


def _rows(model: Schema, definitions: dict[str, Schema], prefix: str) -> list[str]:
    rows = []
    for key, value in model["properties"].items():
        nested = value.get("items", value).get("$ref")
        target = definitions[nested.rpartition("/")[2]] if nested else {}
        if "properties" in target:
            mark = f"{prefix}{key}[]." if "items" in value else f"{prefix}{key}."
            rows += _rows(target, definitions, mark)
            continue
        default = (
            "**required**" if key in model.get("required", ()) else f"`{json.dumps(value.get('default'))}`"
        )
        default = "" if default == "`null`" else default
        meaning = " ".join(value.get("description", "").split())
        rows.append(f"| `{prefix}{key}` | {_type(value, target)} | {default} | {meaning} |")
    return rows


def _type(value: Schema, target: Schema) -> str:
    if "enum" in target or "enum" in value:
        return " or ".join(f"`{each}`" for each in (target or value)["enum"])
    options = value.get("anyOf", [value])
    names = [str(option.get("type", "any value")) for option in options if option.get("type") != "null"]
    bounds = [
        f"{sign} {option[name]}"
        for option in options
        for name, sign in (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="))
        if name in option
    ]
    return " or ".join(names) + (f", {' and '.join(bounds)}" if bounds else "")


def main() -> None:
    """Write the files, or check them."""
    files = {
        DOCS / "configuration.md": page(),
        DOCS / "stack.schema.json": json.dumps(schema(), indent=2) + "\n",
    }
    if "--check" in sys.argv[1:]:
        stale = [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]
        if stale:
            sys.exit(f"docs/ differs from components/settings.py: {', '.join(stale)}. Run `make docs`.")
        return
    DOCS.mkdir(exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
