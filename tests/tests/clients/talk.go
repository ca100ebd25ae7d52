// Talks as programs with gRPC do, through a proxy, with an application of its own: on each of many requests on
// one connection of HTTP/2 messages go both ways, each after the answer to the last, and then trailers.
//
// usage: go run talk.go URL ADDRESS-OF-APPLICATION
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
)

const (
	talks    = 30
	messages = 200
)

func main() {
	url, address := os.Args[1], os.Args[2]
	listener, err := net.Listen("tcp", address)
	must(err)
	go http.Serve(listener, http.HandlerFunc(echo))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	var all sync.WaitGroup
	for number := range talks {
		all.Go(func() { must(talk(client, url, number)) })
	}
	all.Wait()
}

// Sends back what comes as it comes, and in a trailer how much that was and what the client's said.
func echo(writer http.ResponseWriter, request *http.Request) {
	control := http.NewResponseController(writer)
	must(control.EnableFullDuplex())
	writer.Header().Set("Trailer", "X-Bytes, X-Said")
	writer.WriteHeader(200)
	must(control.Flush())
	sum, buffer := 0, make([]byte, 4096)
	for {
		count, err := request.Body.Read(buffer)
		sum += count
		if count > 0 {
			if _, err := writer.Write(buffer[:count]); err != nil {
				return
			}
			control.Flush()
		}
		if err != nil {
			break
		}
	}
	writer.Header().Set("X-Bytes", strconv.Itoa(sum))
	writer.Header().Set("X-Said", request.Trailer.Get("X-Count"))
}

func talk(client *http.Client, url string, number int) error {
	reader, writer := io.Pipe()
	request, err := http.NewRequest("POST", url, reader)
	if err != nil {
		return err
	}
	request.Header.Set("TE", "trailers")
	request.Trailer = http.Header{"X-Count": nil}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != 200 || answer.ProtoMajor != 2 {
		return fmt.Errorf("%s by %s", answer.Status, answer.Proto)
	}
	lines, sum := bufio.NewReader(answer.Body), 0
	for message := range messages {
		line := fmt.Sprintf("message %d of talk %d\n", message, number)
		if _, err := io.WriteString(writer, line); err != nil {
			return err
		}
		got, err := lines.ReadString('\n')
		if err != nil || got != line {
			return fmt.Errorf("%q instead of %q: %v", got, line, err)
		}
		sum += len(line)
	}
	request.Trailer.Set("X-Count", strconv.Itoa(messages))
	writer.Close()
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		return fmt.Errorf("%q follows: %v", rest, err)
	}
	bytes, said := answer.Trailer.Get("X-Bytes"), answer.Trailer.Get("X-Said")
	if bytes != strconv.Itoa(sum) || said != strconv.Itoa(messages) {
		return fmt.Errorf("the trailers are %v", answer.Trailer)
	}
	return nil
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
