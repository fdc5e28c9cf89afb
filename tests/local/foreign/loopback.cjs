// Preloaded into kinesis-local, which listens on every address: this makes it listen on 127.0.0.1 only.
const net = require("net");
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (...args) {
  const given = typeof args[0] === "object" && args[0] !== null ? args.shift() : { port: args.shift() };
  if (typeof args[0] === "string") args.shift();
  if (typeof args[0] === "number") given.backlog = args.shift();
  return listen.call(this, { ...given, host: "127.0.0.1" }, ...args.filter((rest) => typeof rest === "function"));
};
