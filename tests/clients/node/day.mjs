// An agent's short day through an official TypeScript client: look around, edit, run, look at an image, wait, give up.
//
// Usage: day.mjs LINE SERVER PROJECT MODE
//   LINE    1: @modelcontextprotocol/sdk, 2: @modelcontextprotocol/client
//   SERVER  JSON as in a client's configuration: {"url", "headers"} or {"command", "args"}
//   MODE    legacy: with a handshake, auto: the newest version that both speak (line 2 only)
//
// Prints one line for each step; the first thing that is not as it should be ends it with an error.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

// Scripts and packages lie apart.
const load = createRequire(path.join(process.env.NODE_PACKAGES, 'here.cjs'));
const COMMAND_LIMIT_MS = 60_000;
const CALL_LIMIT_MS = 90_000;

const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');

function packages(line) {
    if (line === '1') {
        return {
            ...load('@modelcontextprotocol/sdk/client/index.js'),
            ...load('@modelcontextprotocol/sdk/client/streamableHttp.js'),
            ...load('@modelcontextprotocol/sdk/client/stdio.js'),
        };
    }
    return { ...load('@modelcontextprotocol/client'), ...load('@modelcontextprotocol/client/stdio') };
}

class Day {
    constructor(line, client, project) {
        this.line = line;
        this.client = client;
        this.project = project;
    }

    // The two lines differ in where the options stand.
    callTool(name, args, options = {}) {
        const params = { name, arguments: args };
        const all = { timeout: CALL_LIMIT_MS, ...options };
        return this.line === '1' ? this.client.callTool(params, undefined, all) : this.client.callTool(params, all);
    }

    async call(name, args) {
        const result = await this.callTool(name, args);
        assert.ok(!result.isError, JSON.stringify(result.content));
        return result.structuredContent;
    }

    async refused(code, name, args) {
        const result = await this.callTool(name, args);
        assert.equal(result.isError, true);
        const told = result.structuredContent ?? JSON.parse(result.content[0].text);
        assert.equal(told.error.code, code);
        return told.error.details;
    }

    onDisk(name) {
        return readFileSync(path.join(this.project, name));
    }

    async list() {
        const { tools } = await this.client.listTools();
        const names = tools.map((tool) => tool.name);
        assert.ok(names.includes('workspace_read') && !names.includes('sosoapi_create_workspace'), names.join());
        assert.equal(names.length, 16);
        const schemas = tools.filter((tool) => tool.outputSchema).map((tool) => tool.name);
        const { workspaces } = await this.call('sosoapi_get_workspace_context', {});
        assert.equal(workspaces.length, 1);
        await this.refused('INVALID_ARGUMENTS', 'sosoapi_get_workspace_context', { organization_id: 7 });
        return ` output schemas: ${schemas.join() || 'none'}`;
    }

    async read() {
        const bytes = this.onDisk('small.txt');
        const page = await this.call('workspace_read', { path: 'small.txt' });
        assert.equal(page.content, bytes.toString());
        assert.equal(page.sha256, sha256(bytes));
        await this.refused('NOT_FOUND', 'workspace_read', { path: 'no such file' });
    }

    async edit() {
        const file = { path: 'notes/day one.md' };
        const created = await this.call('workspace_write', { ...file, content: 'one\ntwo 漢\n', expectedSha256: null });
        assert.equal(created.created, true);
        const patched = await this.call('workspace_patch', {
            ...file,
            oldText: 'two',
            newText: '2 🙂',
            expectedSha256: created.sha256,
        });
        assert.equal(this.onDisk(file.path).toString(), 'one\n2 🙂 漢\n');
        assert.equal(patched.sha256, sha256(this.onDisk(file.path)));
        const stale = await this.refused('STALE_REVISION', 'workspace_delete', { ...file, expectedSha256: created.sha256 });
        assert.equal(stale.currentSha256, patched.sha256);
        await this.call('workspace_delete', { ...file, expectedSha256: patched.sha256 });
        assert.ok(!existsSync(path.join(this.project, file.path)));
    }

    async run() {
        const { commandId } = await this.call('workspace_exec', { command: 'sh check.sh' });
        const deadline = Date.now() + COMMAND_LIMIT_MS;
        let [offset, output] = [0, ''];
        for (;;) {
            const page = await this.call('workspace_poll', { commandId, offset });
            output += page.output;
            offset = page.nextOffset;
            if (page.status !== 'running' && offset === page.totalBytes) {
                assert.equal(page.exitCode, 1);
                assert.match(output, /not ok 2/);
                return;
            }
            assert.ok(Date.now() < deadline, 'the command did not end');
        }
    }

    async look() {
        const result = await this.callTool('workspace_image', { path: 'dot.png' });
        const [image, facts] = result.content;
        assert.equal(image.type, 'image');
        assert.equal(image.mimeType, 'image/png');
        assert.equal(JSON.parse(facts.text).originalWidth, 1);
        assert.equal(result.structuredContent, undefined);
    }

    // A question that nobody answers: the client hears of progress, gives up, and goes on.
    async giveUp() {
        const giving = new AbortController();
        let heard = 0;
        const asked = this.callTool(
            'workspace_ask',
            { question: 'Is anybody there?' },
            {
                signal: giving.signal,
                onprogress: () => {
                    heard += 1;
                    giving.abort('nobody is there');
                },
            },
        );
        await assert.rejects(asked, /nobody is there|abort/i);
        assert.equal(heard, 1);
        await this.call('workspace_info', {});
    }
}

async function main([line, server, project, mode]) {
    const { Client, StreamableHTTPClientTransport, StdioClientTransport } = packages(line);
    const { url, headers, command, args } = JSON.parse(server);
    const transport = url
        ? new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } })
        : new StdioClientTransport({ command, args, env: process.env });
    const options = line === '1' ? {} : { versionNegotiation: { mode } };
    const client = new Client({ name: 'tests', version: '0' }, options);
    await client.connect(transport);
    const version = transport.protocolVersion ?? client.getNegotiatedProtocolVersion?.();
    console.log('protocol', version ?? 'unknown');
    const day = new Day(line, client, project);
    for (const step of ['list', 'read', 'edit', 'run', 'look', 'giveUp']) {
        const said = await day[step]();
        console.log(`ok ${step}${said ?? ''}`);
    }
    await client.close();
}

await main(process.argv.slice(2));
