'use strict'
// Has a server of node:http answer on the sockets that Forebay hands over, each for one request:
//
//     require('./handover').listen(server, '/run/app/receiver.sock')
//
// Node takes descriptors from other programs by its channel to child processes alone, whose parts are not documented
// (process.binding): this is of Node 18 to 22, and an example rather than a promise.
const fs = require('node:fs')
const net = require('node:net')
const { Pipe, constants } = process.binding('pipe_wrap')

const HEADER_BYTES = 20
const report = kind => Buffer.concat([Buffer.from(kind), Buffer.alloc(15)])

exports.listen = (server, path) => {
  // what node reads behind a request would be lost
  server.prependListener('request', (_, response) => { response.shouldKeepAlive = false })
  fs.rmSync(path, { force: true })
  const links = new Set()
  return net.createServer({ pauseOnConnect: true }, link => {
    const fd = link._handle.fd
    const pipe = new Pipe(constants.IPC)
    pipe.open(fd)
    links.add(pipe)
    let came = Buffer.alloc(0)
    let client
    const say = kind => {
      try { fs.writeSync(fd, report(kind)) } catch { return false }
      return true
    }
    const end = () => { links.delete(pipe); pipe.readStop(); link.destroy() }
    pipe.onread = function (part) {
      if (!part) return end()
      came = Buffer.concat([came, Buffer.from(part)])
      client ??= this.pendingHandle
      this.pendingHandle = undefined
      if (came.length < HEADER_BYTES) return
      const lines = HEADER_BYTES + came.readUInt16BE(6)
      const whole = lines + came.readUInt32BE(8)
      if (came.length < whole) return
      if (came.toString('latin1', 0, 5) !== 'FBHO\x01' || !client || !say('T')) return end()
      const socket = new net.Socket({ handle: client, readable: true, writable: true })
      socket.unshift(came.subarray(lines, whole))
      // node:http would read past what is in front
      client._consumed = true
      client = undefined
      came = came.subarray(whole)
      socket.once('close', () => say('D'))
      server.emit('connection', socket)
    }
    pipe.readStart()
  }).listen(path)
}
