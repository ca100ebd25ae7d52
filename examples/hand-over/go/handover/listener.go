// Package handover is a net.Listener for net/http: its connections are sockets that Forebay hands over, each for one
// request. server.SetKeepAlivesEnabled(false), because what net/http reads behind the request would be lost.
package handover

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"syscall"
)

type Listener struct{ *net.UnixListener }

// Conn reads what Forebay has received of the request, then the client's socket, and says when it is closed.
type Conn struct {
	net.Conn
	received []byte
	link     *net.UnixConn
}

func Listen(path string) (Listener, error) {
	os.Remove(path)
	unix, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	return Listener{unix}, err
}

func (l Listener) Accept() (net.Conn, error) {
	for {
		link, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if conn, err := take(link); err == nil {
			return conn, nil
		}
		link.Close()
	}
}

func take(link *net.UnixConn) (*Conn, error) {
	header, beside := make([]byte, 20), make([]byte, 64)
	if _, count, _, _, err := link.ReadMsgUnix(header[:1], beside); err != nil {
		return nil, err
	} else if messages, err := syscall.ParseSocketControlMessage(beside[:count]); err != nil || len(messages) != 1 {
		return nil, io.ErrUnexpectedEOF
	} else if given, err := syscall.ParseUnixRights(&messages[0]); err != nil {
		return nil, err
	} else {
		file := os.NewFile(uintptr(given[0]), "client")
		defer file.Close()
		if _, err := io.ReadFull(link, header[1:]); err != nil || string(header[:5]) != "FBHO\x01" {
			return nil, io.ErrUnexpectedEOF
		} else if _, err := link.Write(append([]byte("T"), make([]byte, 15)...)); err != nil {
			return nil, err
		}
		lines := uint32(binary.BigEndian.Uint16(header[6:]))
		received := make([]byte, lines+binary.BigEndian.Uint32(header[8:]))
		if _, err := io.ReadFull(link, received); err != nil {
			return nil, err
		}
		client, err := net.FileConn(file)
		return &Conn{client, received[lines:], link}, err
	}
}

func (c *Conn) Read(into []byte) (int, error) {
	if len(c.received) == 0 {
		return c.Conn.Read(into)
	}
	count := copy(into, c.received)
	c.received = c.received[count:]
	return count, nil
}

func (c *Conn) Close() error {
	err := c.Conn.Close()
	c.link.Write(append([]byte("D"), make([]byte, 15)...))
	c.link.Close()
	return err
}
