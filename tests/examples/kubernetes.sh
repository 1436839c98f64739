#!/usr/bin/env bash
# The Kubernetes manifest is valid YAML with consistent parts, and its command names the pods that it creates.
. "$(dirname "$0")/../lib.sh"

"$TORCH_PYTHON" -c 'import yaml' 2>/dev/null || skip "no PyYAML in $TORCH_PYTHON"
"$TORCH_PYTHON" - "$ROOT/scripts/examples/kubernetes.yaml" <<'END' || bad 'the manifest is wrong'
import re
import sys
import yaml

text = open(sys.argv[1]).read()
service, pods = yaml.safe_load_all(text)
assert (service["apiVersion"], service["kind"]) == ("v1", "Service")
assert (pods["apiVersion"], pods["kind"]) == ("apps/v1", "StatefulSet")
assert service["spec"]["clusterIP"] == "None", "a headless service gives the pods their names"
template = pods["spec"]["template"]
labels = template["metadata"]["labels"]
assert labels == service["spec"]["selector"] == pods["spec"]["selector"]["matchLabels"]
name, subdomain = pods["metadata"]["name"], service["metadata"]["name"]
assert pods["spec"]["serviceName"] == subdomain
(container,) = template["spec"]["containers"]
mounts = {m["name"] for m in container["volumeMounts"]}
assert mounts == {v["name"] for v in template["spec"]["volumes"]}
command = " ".join(line.lstrip("# ").rstrip("\\") for line in text.splitlines() if line.startswith("#"))
hosts = re.search(r"hosts=([^']*)'", command)[1].split()
assert [h.split(":")[0] for h in hosts] == [f"{name}-{i}" for i in range(pods["spec"]["replicas"])]
slots = container["resources"]["limits"]["nvidia.com/gpu"]
assert all(h == f"{h.split(':')[0]}:{slots}" for h in hosts)
assert f"master_addr={name}-0.{subdomain}" in command
assert f"cwd={container['workingDir']}" in command
END
