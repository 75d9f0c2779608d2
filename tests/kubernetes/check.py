"""Validates Kubernetes objects (YAML on standard input) against the API's schemas; prints them as one JSON list."""

import json
import sys

import kubernetes_validate
import yaml

objects = [item for item in yaml.safe_load_all(sys.stdin) if item is not None]
for item in objects:
    try:
        kubernetes_validate.validate(item, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as problem:
        name = f"{item.get('kind')}/{item.get('metadata', {}).get('name')}"
        sys.exit(f"{name}: {'.'.join(map(str, problem.path))}: {problem.message}")
json.dump(objects, sys.stdout)
