"""An agent's working day through the official MCP client: read, page, edit, run, answer, stop, look, give up.

Usage: main_job.py [--quick] SERVER PROJECT auto|legacy

SERVER is JSON as in a client's configuration: {"url", "headers"} or {"command", "args"}. A quick day reads few pages.
Prints one line for each step; the first thing that is not as it should be ends it with an error.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

COMMAND_LIMIT_S = 60


class Refused(Exception):
    """A tool's error result."""

    def __init__(self, structured: dict[str, Any]) -> None:
        super().__init__(str(structured))
        self.code: str = structured["error"]["code"]
        self.details: dict[str, Any] = structured["error"]["details"]


def check(condition: bool, what: object) -> None:
    if not condition:
        raise AssertionError(what)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Job:
    def __init__(self, client: Client, project: Path) -> None:
        self.client = client
        self.project = project

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = await self.client.call_tool(tool, arguments)
        if result.is_error:
            # While output schemas are listed, an error has content alone.
            raise Refused(result.structured_content or json.loads(result.content[0].text))
        return result.structured_content

    async def refused(self, code: str, tool: str, **arguments: Any) -> dict[str, Any]:
        try:
            answer = await self.call(tool, **arguments)
        except Refused as refusal:
            check(refusal.code == code, f"{tool}: expected {code}, got {refusal}")
            return refusal.details
        raise AssertionError(f"{tool}: expected {code}, got {answer}")

    async def find_out(self) -> None:
        tools = [tool.name for tool in (await self.client.list_tools()).tools]
        check("workspace_read" in tools and "sosoapi_get_workspace_context" in tools, tools)
        check("sosoapi_create_workspace" not in tools, "that one is for the full profile")
        context = await self.call("sosoapi_get_workspace_context")
        check(len(context["workspaces"]) == 1, context)
        await self.refused("INVALID_ARGUMENTS", "sosoapi_get_workspace_context", organization_id=7)
        info = await self.call("workspace_info")
        check(info["protocol"] == 1 and info["mode"] == "full", info)
        instructions = {entry["path"]: entry for entry in info["instructions"]}
        on_disk = (self.project / "AGENTS.md").read_bytes()
        check(instructions["AGENTS.md"]["content"].encode() == on_disk, "the instructions are the file")
        check(instructions["AGENTS.md"]["sha256"] == sha256(on_disk), "and so is their revision")

    async def page(self, path: str, limit: int) -> None:
        on_disk = (self.project / path).read_bytes()
        offset: int | None = 0
        parts: list[bytes] = []
        while offset is not None:
            page = await self.call("workspace_read", path=path, offset=offset, limit=limit)
            content = page["content"].encode()
            check(len(content) <= limit and len(content) == page["bytes"], page)
            check(page["sha256"] == sha256(on_disk), "each page carries the whole file's revision")
            check(page["size"] == len(on_disk) and page["offset"] == offset, page)
            parts.append(content)
            offset = page["nextOffset"]
        check(b"".join(parts) == on_disk, f"{path} by {limit} bytes comes back as it is")

    async def edit(self) -> None:
        path = "notes/day one.md"
        created = await self.call("workspace_write", path=path, content="one\ntwo 漢\n", expectedSha256=None)
        check(created["created"] is True and created["previousSha256"] is None, created)
        check((self.project / path).read_bytes() == "one\ntwo 漢\n".encode(), "written as sent")
        await self.refused("ALREADY_EXISTS", "workspace_write", path=path, content="x", expectedSha256=None)

        patched = await self.call(
            "workspace_patch", path=path, oldText="two", newText="2 🙂", expectedSha256=created["sha256"]
        )
        now = "one\n2 🙂 漢\n".encode()
        check((self.project / path).read_bytes() == now, "patched in place")
        check(patched["sha256"] == sha256(now) and patched["bytes"] == len(now), patched)
        check(patched["offset"] == 4 and patched["line"] == 2, patched)

        stale = created["sha256"]
        details = await self.refused("STALE_REVISION", "workspace_delete", path=path, expectedSha256=stale)
        check(details["currentSha256"] == patched["sha256"], details)
        deleted = await self.call("workspace_delete", path=path, expectedSha256=patched["sha256"])
        check(deleted["deleted"] is True and not (self.project / path).exists(), deleted)
        await self.refused("NOT_FOUND", "workspace_read", path=path)

    async def poll(self, command: str, offset: int) -> dict[str, Any]:
        return await self.call("workspace_poll", commandId=command, offset=offset)

    async def run(self, command: str) -> tuple[str, dict[str, Any]]:
        started = await self.call("workspace_exec", command=command)
        offset, output, deadline = 0, "", time.monotonic() + COMMAND_LIMIT_S
        while time.monotonic() < deadline:
            page = await self.poll(started["commandId"], offset)
            output += page["output"]
            offset = page["nextOffset"]
            if page["status"] != "running" and offset == page["totalBytes"]:
                return output, page
        raise AssertionError(f"`{command}` did not end")

    async def see(self, command: str, text: str) -> str:
        offset, output, deadline = 0, "", time.monotonic() + COMMAND_LIMIT_S
        while text not in output and time.monotonic() < deadline:
            page = await self.poll(command, offset)
            output += page["output"]
            offset = page["nextOffset"]
            check(page["status"] == "running" or text in output, page)
        check(text in output, f"waited in vain for {text!r}")
        return output

    async def test(self) -> None:
        output, end = await self.run("sh check.sh")
        check(end["exitCode"] == 1 and "not ok 2" in output, (output, end))
        greeting = await self.call("workspace_read", path="greeting.txt")
        await self.call(
            "workspace_patch",
            path="greeting.txt",
            oldText="hello\n",
            newText="hello world\n",
            expectedSha256=greeting["sha256"],
        )
        output, end = await self.run("sh check.sh")
        check(end["status"] == "exited" and end["exitCode"] == 0 and end["signal"] is None, end)
        check("not ok" not in output and "ok 2" in output, output)

    async def answer(self) -> None:
        started = await self.call(
            "workspace_exec", command="printf 'Your name? '; read -r name; echo \"Hello, $name.\""
        )
        command = started["commandId"]
        await self.see(command, "Your name? ")
        sent = await self.call("workspace_input", commandId=command, text="Ada 漢\n")
        check(sent["bytes"] == len("Ada 漢\n".encode()), sent)
        await self.see(command, "Hello, Ada 漢.")

    async def stop(self) -> None:
        started = await self.call(
            "workspace_exec",
            command="sleep 300 & echo child $!; (setsid sleep 300 & echo child $!); echo ready; sleep 300",
        )
        command = started["commandId"]
        output = await self.see(command, "ready\n")
        children = [int(line.split()[1]) for line in output.splitlines() if line.startswith("child ")]
        check(len(children) == 2, output)
        stopped = await self.call("workspace_stop", commandId=command)
        check(stopped["status"] == "stopped", stopped)
        check(not any(is_running(child) for child in children), "the children went with it")
        again = await self.call("workspace_stop", commandId=command)
        check(again["status"] == "stopped", again)

    async def look(self) -> None:
        result = await self.client.call_tool("workspace_image", {"path": "dot.png"})
        image, facts = result.content
        check(image.type == "image" and image.mime_type == "image/png", image)
        check(json.loads(facts.text)["originalWidth"] == 1, facts)
        check(result.structured_content is None, "the image is for the eye alone")

    async def give_up(self) -> None:
        """A question that nobody answers: the client hears of progress, gives up, and goes on."""
        heard = anyio.Event()

        async def progress(_progress: float, _total: float | None, _message: str | None) -> None:
            heard.set()

        async with anyio.create_task_group() as asking:
            question = {"question": "Is anybody there?"}
            asking.start_soon(self.client.call_tool, "workspace_ask", question, None, progress)
            with anyio.fail_after(COMMAND_LIMIT_S):
                await heard.wait()
            asking.cancel_scope.cancel()
        await self.call("workspace_info")


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def day(client: Client, project: Path, quick: bool) -> None:
    print("protocol", client.protocol_version, flush=True)
    job = Job(client, project)
    await job.find_out()
    print("ok find_out", flush=True)
    for limit in (61,) if quick else (4, 5, 7, 61):
        await job.page("small.txt", limit)
    for limit in () if quick else (4099, 65537, 131072):
        await job.page("wide.txt", limit)
    print("ok page", flush=True)
    for step in (job.edit, job.test, job.answer, job.stop, job.look, job.give_up):
        await step()
        print("ok", step.__name__, flush=True)


async def main(server: dict[str, Any], project: Path, mode: str, quick: bool) -> None:
    if "command" in server:
        program = StdioServerParameters(command=server["command"], args=server["args"], env=dict(os.environ))
        async with Client(program, mode=mode) as client:
            return await day(client, project, quick)
    async with httpx2.AsyncClient(headers=server["headers"], timeout=90) as http:
        transport = streamable_http_client(server["url"], http_client=http)
        async with Client(transport, mode=mode) as client:
            return await day(client, project, quick)


if __name__ == "__main__":
    *options, server, project, mode = sys.argv[1:]
    asyncio.run(main(json.loads(server), Path(project), mode, options == ["--quick"]))
