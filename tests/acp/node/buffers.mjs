// Two turns through the TypeScript SDK's client with a buffer that is not saved; between them it is.
// argv: the workspace, the model, then the command that speaks ACP.
import { spawn } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [workspace, model, command, ...args] = process.argv.slice(2);
const report = { asked: [] };
const buffer = "unsaved here\n";

const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const ended = new Promise((resolve) => child.on("exit", resolve));
const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));

async function work(agent) {
  await agent.request(acp.methods.agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: { fs: { readTextFile: true, writeTextFile: true } },
  });
  const made = await agent.request(acp.methods.agent.session.new, { cwd: workspace, mcpServers: [] });
  const sessionId = (report.sessionId = made.sessionId);
  const option = { sessionId, configId: "model", value: model };
  await agent.request(acp.methods.agent.session.setConfigOption, option);
  const prompt = { sessionId, prompt: [{ type: "text", text: "go" }] };
  await agent.request(acp.methods.agent.session.prompt, prompt);
  await writeFile(join(workspace, "greeting.txt"), buffer);
  await agent.request(acp.methods.agent.session.prompt, prompt);
}

await acp
  .client({ name: "sdk" })
  .onRequest(acp.methods.client.session.requestPermission, () => {
    return { outcome: { outcome: "selected", optionId: "once" } };
  })
  .onRequest(acp.methods.client.fs.readTextFile, ({ params }) => {
    report.asked.push(params.path);
    return { content: buffer };
  })
  .onNotification(acp.methods.client.session.update, () => {})
  .connectWith(stream, work);
child.stdin.end();
await ended;
process.stdout.write(JSON.stringify(report));
