import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;

/** Posts standard input to a URL, three times over one client: a new one offers h2c with its first request. */
public class Client {
    public static void main(String[] arguments) throws Exception {
        byte[] body = System.in.readAllBytes();
        var client = HttpClient.newHttpClient();
        for (int count = 0; count < 3; count++) {
            var publisher = arguments[1].equals("chunked")
                    ? HttpRequest.BodyPublishers.fromPublisher(HttpRequest.BodyPublishers.ofByteArray(body))
                    : HttpRequest.BodyPublishers.ofByteArray(body);
            var request = HttpRequest.newBuilder(URI.create(arguments[0]))
                    .header("Content-Type", "application/json")
                    .header("Authorization", "Bearer sk-client")
                    .POST(publisher)
                    .build();
            var answer = client.send(request, HttpResponse.BodyHandlers.ofString(StandardCharsets.UTF_8));
            System.out.println(answer.statusCode() + " " + answer.version() + " " + answer.body());
        }
    }
}
