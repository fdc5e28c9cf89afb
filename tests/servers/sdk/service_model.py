"""The model of the API that the endpoint was made from, and what a newer SDK adds or changes: `make service-model`.

Runs in an environment that has nothing but botocore: `python tests/servers/sdk/service_model.py [--write]`.
"""

import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("service_model.json")
KEPT = ("type", "required", "members", "member", "key", "value", "min", "max", "pattern", "enum")
NOT_SERVED = {
    "CreateChannel", "DescribeChannel", "ListChannels", "UpdateChannel", "DeleteChannel", "UpdateStreamWarmThroughput",
    "DescribeAccountSettings", "UpdateAccountSettings",
}  # fmt: skip
"""Operations that would have no effect in the endpoint, and that no tool of those that run against it calls."""
Model = dict[str, Any]


def stored_model() -> Model:
    """The model that the endpoint was made from: `botocore`, `operations` by name, `shapes` without their documentation."""
    model: Model = json.loads(FILE.read_text())
    return model


def served_operations() -> Model:
    """The operations of that model which the endpoint has."""
    return {name: each for name, each in stored_model()["operations"].items() if name not in NOT_SERVED}


def installed_model() -> Model:
    """The same of the SDK in this environment."""
    import botocore
    from botocore.loaders import Loader

    service = Loader().load_service_model("kinesis", "service-2")
    operations = {
        name: {part: operation[part]["shape"] for part in ("input", "output") if part in operation}
        for name, operation in service["operations"].items()
    }
    shapes = {name: _without_documentation(shape) for name, shape in service["shapes"].items()}
    return {"botocore": botocore.__version__, "operations": operations, "shapes": shapes}


def _without_documentation(shape: dict[str, Any]) -> dict[str, Any]:
    kept = {name: shape[name] for name in KEPT if name in shape}
    for name in ("member", "key", "value"):
        if name in kept:
            kept[name] = kept[name]["shape"]
    if "members" in kept:
        kept["members"] = {name: member["shape"] for name, member in kept["members"].items()}
    return kept


def differences(old: Model, new: Model) -> list[str]:
    """One line for each operation or shape that was added, removed or changed."""
    lines = []
    for what in ("operations", "shapes"):
        for name in sorted(old[what].keys() | new[what].keys()):
            before, after = old[what].get(name), new[what].get(name)
            kind = what[:-1]
            if before is None:
                lines.append(f"new {kind} {name}: {json.dumps(after)}")
            elif after is None:
                lines.append(f"{kind} {name} is gone")
            elif before != after:
                lines.append(f"{kind} {name} was {json.dumps(before)}, is {json.dumps(after)}")
    return lines


def main(arguments: list[str]) -> None:
    """Print the differences; with --write take the installed model over."""
    old, new = stored_model() if FILE.exists() else {"botocore": "", "operations": {}, "shapes": {}}, installed_model()
    lines = differences(old, new)
    print(f"The endpoint was made from the model of botocore {old['botocore']}; this is botocore {new['botocore']}.")
    print("\n".join(lines) or "Nothing has been added or changed.")
    if "--write" in arguments:
        FILE.write_text(_text(new))


def _text(model: Model) -> str:
    """JSON with one line for each operation and shape, so that a change is seen."""
    parts = [
        f'"{what}": {{\n'
        + ",\n".join(f'"{name}": {json.dumps(model[what][name])}' for name in sorted(model[what]))
        + "\n}"
        for what in ("operations", "shapes")
    ]
    return f'{{\n"botocore": "{model["botocore"]}",\n' + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main(sys.argv[1:])
