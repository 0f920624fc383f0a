// Loaded into an agent's process: whatever would leave this machine is refused, and written down.
"use strict";

const dns = require("node:dns");
const fs = require("node:fs");
const net = require("node:net");

const near = (host) => !host || host === "localhost" || host === "::1" || /^127\./.test(host);

function refuse(what) {
  fs.appendFileSync(process.env.LOOPBACK_STRAYED, `${what}\n`);
  throw new Error(`not loopback: ${what}`);
}

const connect = net.Socket.prototype.connect;
net.Socket.prototype.connect = function (...given) {
  const where = Array.isArray(given[0]) ? given[0][0] : given[0];
  if (where && typeof where === "object" && !where.path && !near(where.host)) refuse(`${where.host}:${where.port}`);
  return connect.apply(this, given);
};

for (const home of [dns, dns.promises]) {
  const lookup = home.lookup;
  home.lookup = function (name, ...rest) {
    if (!near(name)) refuse(name);
    return lookup.call(this, name, ...rest);
  };
}
