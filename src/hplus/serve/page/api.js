// Requests to the service that this page came from, and to nothing else.

export class ServiceError extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.code = error.code;
    this.field = error.field;
  }
}

async function call(method, path, body, signal) {
  const started = performance.now();
  const options = { method, signal, headers: {}, credentials: "same-origin" };
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const response = await fetch(path, options);
  const text = await response.text();
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new ServiceError(response.status, { code: "shape", message: "the answer is not JSON" });
  }
  if (!response.ok) throw new ServiceError(response.status, value.error);
  const parts = response.headers.get("server-timing") || "";
  const took = { total: performance.now() - started };
  for (const [, name, ms] of parts.matchAll(/(\w+);dur=([\d.]+)/g)) took[name] = Number(ms);
  return { value, took };
}

export const get = (path, signal) => call("GET", path, undefined, signal);
export const post = (path, body, signal) => call("POST", path, body, signal);
export const place = (index, rest) => `/indexes/${encodeURIComponent(index)}/${rest}`;

// The same request for a shell; in single quotes nothing is special but the quote itself.
export function curl(path, body) {
  const quoted = "'" + JSON.stringify(body).replaceAll("'", "'\\''") + "'";
  return `curl -s ${location.origin}${path} -H 'Content-Type: application/json' -d ${quoted}`;
}
