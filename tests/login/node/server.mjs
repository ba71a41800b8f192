// The login service of the tests: oidc-provider, which is certified and not ours, behind the rules
// that OpenAI documents for "Sign in with ChatGPT". Prints its address, and ends with its input.
// `/_control` sets how it behaves next, and `/_seen` tells what it has been asked.
import { createServer } from "node:http";
import { generateKeyPairSync } from "node:crypto";
import { createRequire } from "node:module";
import Provider from "oidc-provider";

const jose = await import(createRequire(import.meta.resolve("oidc-provider")).resolve("jose"));
const PLAN = "chatgpt.tokens.use.direct";
const SCOPES = ["openid", "profile", "email", "offline_access", "resource.invoke", PLAN];
const REDIRECT = /^http:\/\/127\.0\.0\.1:\d+\/auth\/callback$/;
const HOST_ID = /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const NOTHING = { account: "user-1", deny: false, plan: true, tamper: null, earliestIn: null,
  expiresIn: 3600, tokenError: null, dropIssued: false, revokeStatus: null, delayMs: 0 };

const key = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey;
const foreign = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey;
const jwk = { ...key.export({ format: "jwk" }), kid: "k1", use: "sig", alg: "RS256" };
const control = { ...NOTHING, resource: "" };
const seen = [];
const issued = new Map(); // the state of a first login -> the client that it has made
const earliest = new Map(); // a refresh token -> when it may be used, in Unix seconds
let clients = 0;

const server = createServer((request, response) => {
  handle(request, response).catch((error) => {
    console.error(error);
    response.writeHead(500).end("the test's server failed");
  });
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const base = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(base, {
  jwks: { keys: [jwk] },
  clients: [],
  cookies: { keys: ["test"] },
  pkce: { required: () => true },
  scopes: ["openid", "offline_access"],
  claims: { openid: ["sub"], email: ["email"], profile: ["name"] },
  conformIdTokenClaims: false,
  rotateRefreshToken: true,
  issueRefreshToken: async () => true,
  ttl: { AccessToken: () => control.expiresIn, RefreshToken: 30 * 86400, IdToken: 3600, Grant: 30 * 86400,
    Session: 60, Interaction: 60 },
  findAccount: async (_, id) => ({
    accountId: id,
    claims: async () => ({ sub: id, email: `${id}@example.com`, name: "A User" }),
  }),
  interactions: { url: (_, interaction) => `/_interaction/${interaction.uid}` },
  features: {
    devInteractions: { enabled: false },
    revocation: { enabled: true, allowedPolicy: async () => true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: async () => true,
      getResourceServerInfo: async (_, resource) => ({
        scope: `resource.invoke ${PLAN}`, audience: resource, accessTokenFormat: "jwt",
        accessTokenTTL: control.expiresIn, jwt: { sign: { alg: "RS256" } },
      }),
    },
  },
});
const passOn = provider.callback();

async function handle(request, response) {
  const url = new URL(request.url, base);
  if (url.pathname.startsWith("/_")) return handleOwn(url, request, response);
  if (url.pathname === "/api/accounts/authorize") return authorize(url, request, response);
  if (url.pathname === "/api/accounts/oauth/token") return token(request, response);
  if (url.pathname === "/token/revocation") return revoke(request, response);
  addClient(response);
  passOn(request, response);
}

async function handleOwn(url, request, response) {
  if (url.pathname === "/_control") {
    Object.assign(control, NOTHING, JSON.parse(await read(request)));
    return json(response, 200, {});
  }
  if (url.pathname === "/_seen") return json(response, 200, seen.splice(0));
  const { prompt, params, session } = await provider.interactionDetails(request, response);
  if (control.deny) {
    return provider.interactionFinished(request, response, { error: "access_denied" });
  }
  if (prompt.name === "login") {
    const login = { accountId: control.account };
    return provider.interactionFinished(request, response, { login });
  }
  const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope("openid email profile offline_access");
  grant.addResourceScope(params.resource, `resource.invoke${control.plan ? ` ${PLAN}` : ""}`);
  if (!control.plan) grant.rejectResourceScope(params.resource, PLAN);
  const consent = { grantId: await grant.save() };
  return provider.interactionFinished(request, response, { consent }, { mergeWithLastSubmission: true });
}

// Page "Registration and sign-in".
async function authorize(url, request, response) {
  const query = Object.fromEntries(url.searchParams);
  seen.push({ path: url.pathname, ...query });
  const isNew = query.client_id === "dynamic_agent_client";
  const wrong = [
    [HOST_ID.test(query.ext_agent_host_id), "ext_agent_host_id"],
    [isNew === "agent_name_hint" in query, "agent_name_hint"],
    [REDIRECT.test(query.redirect_uri), "redirect_uri"],
    [query.resource === control.resource, "resource"],
    [query.response_type === "code" && query.code_challenge_method === "S256", "code"],
    [query.scope.split(" ").sort().join() === [...SCOPES].sort().join(), "scope"],
    [query.nonce?.length > 20 && query.state?.length > 20, "nonce or state"],
  ].filter(([right]) => !right);
  if (wrong.length) return json(response, 400, { error: wrong.map(([, name]) => name).join() });
  if (isNew) {
    const id = `oaiapp_${++clients}`;
    await provider.Client.adapter.upsert(id, {
      client_id: id, application_type: "native", token_endpoint_auth_method: "none",
      redirect_uris: ["http://127.0.0.1/auth/callback"], response_types: ["code"],
      grant_types: ["authorization_code", "refresh_token"],
    });
    issued.set(query.state, id);
    url.searchParams.set("client_id", id);
  }
  if (control.tamper?.nonce) url.searchParams.set("nonce", control.tamper.nonce);
  for (const name of ["agent_name_hint", "ext_agent_host_id"]) url.searchParams.delete(name);
  url.searchParams.set("prompt", "consent");
  request.url = `/auth?${url.searchParams}`;
  addClient(response);
  passOn(request, response);
}

// A redirect of a first login brings the client's id.
function addClient(response) {
  const set = response.setHeader.bind(response);
  response.setHeader = (name, value) => {
    if (name.toLowerCase() === "location" && REDIRECT.test(value.split("?")[0])) {
      const location = new URL(value);
      const id = issued.get(location.searchParams.get("state"));
      if (id && !control.dropIssued) location.searchParams.set("client_id", id);
      value = location.href;
    }
    return set(name, value);
  };
}

// Pages "Registration and sign-in" and "Accounts and sessions".
async function token(request, response) {
  const form = Object.fromEntries(new URLSearchParams(await read(request)));
  seen.push({ path: "token", ...form });
  if (control.delayMs) await new Promise((resolve) => setTimeout(resolve, control.delayMs));
  if (control.tokenError) return json(response, ...control.tokenError);
  const isRefresh = form.grant_type === "refresh_token";
  if (!form.client_id?.startsWith("oaiapp_") || "client_secret" in form) {
    return json(response, 401, { error: "invalid_client" });
  }
  if (form.resource !== control.resource || (isRefresh && "scope" in form)) {
    return json(response, 400, { error: "invalid_request" });
  }
  const tooEarly = isRefresh && Date.now() / 1000 < (earliest.get(form.refresh_token) ?? 0);
  request.url = "/token";
  request.body = form;
  edit(response, async (answer) => {
    if (!answer.access_token) return answer;
    if (tooEarly) return [400, { error: "invalid_grant" }]; // and the refresh token is spent
    const at = Math.floor(Date.now() / 1000) + (control.earliestIn ?? control.expiresIn - 360);
    earliest.set(answer.refresh_token, at);
    const granted = SCOPES.filter((one) => one !== PLAN || answer.scope.includes(PLAN));
    const id_token = control.tamper ? await tampered(answer.id_token) : answer.id_token;
    return { ...answer, id_token, scope: granted.join(" "), earliest_refresh_at: at };
  });
  passOn(request, response);
}

async function revoke(request, response) {
  const form = Object.fromEntries(new URLSearchParams(await read(request)));
  seen.push({ path: "revocation", ...form });
  if (control.revokeStatus) return json(response, control.revokeStatus, {});
  request.body = form;
  passOn(request, response);
}

// Sign the claims again, with some of them changed.
async function tampered(idToken) {
  const { nonce, signature, ...claims } = control.tamper;
  if (signature === undefined && !Object.keys(claims).length) return idToken;
  return new jose.SignJWT({ ...jose.decodeJwt(idToken), ...claims })
    .setProtectedHeader({ alg: "RS256", kid: "k1" })
    .sign(signature === "foreign" ? foreign : key);
}

// Let `change` replace the JSON of a response.
function edit(response, change) {
  const end = response.end.bind(response);
  response.end = (body) => {
    change(JSON.parse(body)).then((changed) => {
      const [status, answer] = Array.isArray(changed) ? changed : [response.statusCode, changed];
      const data = Buffer.from(JSON.stringify(answer));
      response.statusCode = status;
      response.setHeader("content-length", data.length);
      end(data);
    });
    return response;
  };
}

async function read(request) {
  let text = "";
  for await (const piece of request) text += piece;
  return text;
}

function json(response, status, body) {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}

console.log(base);
process.stdin.resume().on("end", () => process.exit(0));
