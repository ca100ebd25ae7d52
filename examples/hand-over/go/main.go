// Answers each request that Forebay hands over with what it was asked: go run . /run/app/receiver.sock
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"forebay.example/handover/handover"
)

func main() {
	os.Remove(os.Args[1])
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: os.Args[1], Net: "unix"})
	if err != nil {
		log.Fatal(err)
	}
	answer := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %d from %s\n", r.Method, r.URL.Path, len(body), r.RemoteAddr)
	}
	server := &http.Server{Handler: http.HandlerFunc(answer)}
	server.SetKeepAlivesEnabled(false)
	log.Fatal(server.Serve(handover.Listener{UnixListener: listener}))
}
