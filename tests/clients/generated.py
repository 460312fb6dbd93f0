"""The read API by openapi-python-client: `python generated.py SETTING`, as generated.mjs."""

import importlib
import inspect
import json
import subprocess
import sys
import tempfile
from pathlib import Path

SETTING = json.loads(sys.argv[1])
SHARD, VERSION = "0" * 14, "0" * 24
KNOWN = {"wallet": SETTING["wallet"], "id": SETTING["id"], "prefix": "a", "shard": SHARD, "v": VERSION, "names": f"{SHARD}-{VERSION}"}
description = json.loads(Path(SETTING["description"]).read_text())
directory = tempfile.mkdtemp()
generate = [str(Path(sys.executable).with_name("openapi-python-client")), "generate", "--meta", "none", "--path", SETTING["description"]]
# A token's media type is none that the generator knows.
Path(directory, "config.yml").write_text("content_type_overrides:\n  application/jwt: text/plain\n")
generate += ["--config", f"{directory}/config.yml", "--output-path", f"{directory}/read_api"]
subprocess.run(generate, check=True, capture_output=True)
sys.path.insert(0, directory)
client = importlib.import_module("read_api").Client(base_url=SETTING["url"], raise_on_unexpected_status=True, timeout=60)
functions = {path.stem.replace("_", ""): path for path in Path(directory, "read_api/api").glob("*/*.py")}
problems, read = [], {}
for item in description["paths"].values():
    for operation in item.values():
        name = operation["operationId"]
        path = functions.get(name.lower())
        if path is None:
            problems.append(f"{name}: is not generated")
            continue
        function = importlib.import_module(f"read_api.api.{path.parent.name}.{path.stem}").sync_detailed
        arguments = {"client": client}
        for parameter in inspect.signature(function, eval_str=True).parameters.values():
            if parameter.name == "body":
                example = operation["requestBody"]["content"]["application/json"]["example"]
                kinds = [parameter.annotation, *getattr(parameter.annotation, "__args__", [])]
                arguments["body"] = next(kind for kind in kinds if hasattr(kind, "from_dict")).from_dict(example)
            elif parameter.name in KNOWN and parameter.default is inspect.Parameter.empty:
                arguments[parameter.name] = KNOWN[parameter.name]
        try:
            read[name] = function(**arguments)
            if str(int(read[name].status_code)) not in operation["responses"]:
                problems.append(f"{name}: {read[name].status_code}")
        except Exception as error:
            problems.append(f"{name}: {error!r}"[:300])
get_agent = importlib.import_module("read_api.api.agents.get_agent").sync
result = {
    "problems": problems,
    "operations": len(read),
    "decision": str(read["checkWallet"].parsed.decision),
    "status": str(get_agent(SETTING["terminated"], client=client).agent.status),
}
print(json.dumps(result))
