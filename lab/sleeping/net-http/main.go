// `/wait?ms=N` is answered after that time: net/http, with as many threads as there are cores for them.
package main

import (
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"
)

func main() {
	http.HandleFunc("/wait", func(answer http.ResponseWriter, request *http.Request) {
		ms, _ := strconv.Atoi(request.URL.Query().Get("ms"))
		time.Sleep(time.Duration(ms) * time.Millisecond)
		io.WriteString(answer, "echo")
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
