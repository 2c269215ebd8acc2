"""What a JSON Schema says of YAML files: "FILE ok", or "FILE refused: PLACE: why", one line each.

usage: check_schema.py SCHEMA.json FILE.yaml...
"""
import json
import re
import sys

import jsonschema
import yaml


class Loader(yaml.SafeLoader):
    """YAML 1.2's scalars, as frostline and editors read them: 1e-3 is a number, yes is a text."""


TAGS = {
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9]+", "-+0123456789"),
    "float": (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
}
Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0].rsplit(":", 1)[1] in ("null", "merge")]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for name, (pattern, first) in TAGS.items():
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(f"^(?:{pattern})$"), list(first))

with open(sys.argv[1]) as file:
    schema = json.load(file)
jsonschema.Draft7Validator.check_schema(schema)
validator = jsonschema.Draft7Validator(schema)
for path in sys.argv[2:]:
    with open(path) as file:
        config = yaml.load(file, Loader)
    error = jsonschema.exceptions.best_match(validator.iter_errors(config))
    place = "" if error is None else ".".join(str(part) for part in error.absolute_path)
    print(path, "ok" if error is None else f"refused: {place}: {error.message[:200]}")
