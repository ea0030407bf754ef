"""The part of JSON Schema that `record.schema.json` uses, checked without the library."""

import json
from pathlib import Path

SCHEMA = json.loads(Path(__file__).with_name("record.schema.json").read_text())
_TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "number": (int, float),
    "integer": int,
    "null": type(None),
}


def faults(value, schema=SCHEMA, place="record") -> list[str]:
    """Every way in which a JSON value breaks the schema."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(value, bool) or not any(isinstance(value, _TYPES[kind]) for kind in kinds):
        return [f"{place} is {value!r}, wanted {kinds}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place} is {value!r}, wanted one of {schema['enum']}")
    if isinstance(value, dict):
        found += [f"{place}: no {key}" for key in schema.get("required", ()) if key not in value]
        for key, entry in value.items():
            rule = schema.get("properties", {}).get(key, schema.get("additionalProperties", True))
            if rule is False:
                found.append(f"{place}: unknown {key}")
            elif isinstance(rule, dict):
                found += faults(entry, rule, f"{place}.{key}")
    if isinstance(value, list) and "items" in schema:
        for i, entry in enumerate(value):
            found += faults(entry, schema["items"], f"{place}[{i}]")
    return found
