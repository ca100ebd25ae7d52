'use strict'
// Answers each request that Forebay hands over with what it was asked: node main.js /run/app/receiver.sock
const http = require('node:http')
const handover = require('./handover')

const server = http.createServer((request, response) => {
  let bytes = 0
  request.on('data', part => { bytes += part.length })
  request.on('end', () => response.end(`${request.method} ${request.url} ${bytes}\n`))
})
handover.listen(server, process.argv[2])
