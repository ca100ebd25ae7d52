// Loads every file of a directory from a server with Java's HttpClient, by HTTP/2 and by HTTP/1.1.
//
// usage: java Site.java URL DIRECTORY AUTHORITY

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.Arrays;
import java.util.List;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

class Site {
    public static void main(String[] words) throws Exception {
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (var pem = Files.newInputStream(Path.of(words[2]))) {
            trusted.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        SSLContext tls = SSLContext.getInstance("TLS");
        tls.init(null, trust.getTrustManagers(), null);
        Path root = Path.of(words[1]);
        List<Path> files;
        try (var found = Files.walk(root)) {
            files = found.filter(Files::isRegularFile).toList();
        }
        for (var version : HttpClient.Version.values()) {
            HttpClient client = HttpClient.newBuilder().sslContext(tls).version(version).build();
            for (Path file : files) {
                URI url = URI.create(words[0] + "/" + root.relativize(file));
                var answer = client.send(HttpRequest.newBuilder(url).build(), HttpResponse.BodyHandlers.ofByteArray());
                check(answer.statusCode() == 200 && answer.version() == version, answer);
                check(Arrays.equals(answer.body(), Files.readAllBytes(file)), answer);
            }
            var none = HttpRequest.newBuilder(URI.create(words[0] + "/nothing")).build();
            var answer = client.send(none, HttpResponse.BodyHandlers.ofByteArray());
            check(answer.statusCode() == 404, answer);
        }
    }

    static void check(boolean isSo, HttpResponse<?> answer) {
        if (!isSo) {
            throw new AssertionError(answer + " by " + answer.version());
        }
    }
}
