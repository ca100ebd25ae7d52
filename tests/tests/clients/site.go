// Loads every file of a directory from a server with Go's net/http, by HTTP/2 and by HTTP/1.1.
//
// usage: go run site.go URL DIRECTORY AUTHORITY
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
)

func main() {
	url, root, authority := os.Args[1], os.Args[2], os.Args[3]
	pem, err := os.ReadFile(authority)
	must(err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(pem)
	for version, second := range map[int]bool{1: false, 2: true} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: second}
		client := &http.Client{Transport: transport}
		must(filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			name, _ := filepath.Rel(root, path)
			expected, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			answer, err := client.Get(url + "/" + filepath.ToSlash(name))
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			if err == nil && (answer.StatusCode != 200 || answer.ProtoMajor != version || !bytes.Equal(body, expected)) {
				err = fmt.Errorf("%s: %s by %s, %d bytes", name, answer.Status, answer.Proto, len(body))
			}
			return err
		}))
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
