// A real OpenID provider for the tests. Its argument is the folder of the packages. Prints its issuer. A request to `/rotate` replaces its keys.
//
// The client `machine` gets tokens for itself, and `stranger` gets tokens without groups. Everyone can sign in with any
// password through the client `faber`, and only the user `ada` is in a group.

import { generateKeyPairSync, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const modules = createRequire(`${process.argv[2]}/`);
const { Provider } = await import(pathToFileURL(modules.resolve("oidc-provider")).href);

const TOKEN_SECONDS = 300;

function makeKey() {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { ...privateKey.export({ format: "jwk" }), kid: randomUUID(), use: "sig", alg: "RS256" };
}

function makeMachine(name) {
  return {
    client_id: name,
    client_secret: "machine-secret",
    token_endpoint_auth_method: "client_secret_post",
    grant_types: ["client_credentials"],
    redirect_uris: [],
    response_types: [],
  };
}

function makeProvider(issuer) {
  const provider = new Provider(issuer, {
    jwks: { keys: [makeKey()] },
    clients: [
      makeMachine("machine"),
      makeMachine("stranger"),
      {
        client_id: "faber",
        client_secret: "a secret: of the client",
        // A native client may use any port of the loopback address.
        application_type: "native",
        redirect_uris: ["http://127.0.0.1/auth/callback"],
      },
    ],
    claims: { openid: ["sub"], groups: ["groups"] },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, groups: id === "ada" ? ["ops"] : [] }),
    }),
    extraTokenClaims: (_, token) => ({ groups: token.clientId === "machine" ? ["ops"] : [] }),
    features: {
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => undefined,
        getResourceServerInfo: (_, resource) => ({
          scope: "",
          audience: resource,
          accessTokenFormat: "jwt",
          accessTokenTTL: TOKEN_SECONDS,
          jwt: { sign: { alg: "RS256" } },
        }),
      },
    },
  });
  return provider.callback();
}

const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  let answer = makeProvider(issuer);
  server.on("request", (request, response) => {
    if (request.url === "/rotate") {
      answer = makeProvider(issuer);
      response.end();
    } else answer(request, response);
  });
  console.log(issuer);
});
