// Package handover is a net.Listener for net/http: its connections are sockets that Forebay hands over, each for one
// request. server.SetKeepAlivesEnabled(false), because what net/http reads behind the request would be lost.
package handover

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"syscall"
)

// Listener accepts links at its socket, and returns what comes over them.
type Listener struct{ *net.UnixListener }

// Conn reads what Forebay has received of the request, then the client's socket, and says when it is closed.
type Conn struct {
	net.Conn
	reader io.Reader
	link   *net.UnixConn
}

func (l Listener) Accept() (net.Conn, error) {
	for {
		link, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if conn := take(link); conn != nil {
			return conn, nil
		}
		link.Close()
	}
}

// take returns nil where a link ends before its request is whole: it is somebody else's then.
func take(link *net.UnixConn) *Conn {
	header, beside := make([]byte, 20), make([]byte, 64)
	_, count, _, _, _ := link.ReadMsgUnix(header[:1], beside)
	messages, err := syscall.ParseSocketControlMessage(beside[:count])
	if err != nil || len(messages) != 1 {
		return nil
	}
	given, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(given[0]), "client")
	defer file.Close()
	if _, err := io.ReadFull(link, header[1:]); err != nil || string(header[:5]) != "FBHO\x01" || !say(link, "T") {
		return nil
	}
	lines := int(binary.BigEndian.Uint16(header[6:]))
	received := make([]byte, lines+int(binary.BigEndian.Uint32(header[8:])))
	if _, err := io.ReadFull(link, received); err == nil {
		if client, err := net.FileConn(file); err == nil {
			return &Conn{client, io.MultiReader(bytes.NewReader(received[lines:]), client), link}
		}
	}
	return nil
}

func say(link *net.UnixConn, kind string) bool {
	_, err := link.Write(append([]byte(kind), make([]byte, 15)...))
	return err == nil
}

func (c *Conn) Read(into []byte) (int, error) { return c.reader.Read(into) }

func (c *Conn) Close() error {
	defer c.link.Close()
	defer say(c.link, "D")
	return c.Conn.Close()
}
