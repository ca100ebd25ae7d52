// Uploads 20 MB with fetch: node lab/uploads/node_client.js TIMES URL... A line for each URL: lost, then what came.
async function main() {
  const [times, ...urls] = process.argv.slice(2);
  const body = "x".repeat(20000000);
  for (const url of urls) {
    let lost = 0;
    const seen = new Set();
    for (let i = 0; i < +times; i++) {
      try {
        const answer = await fetch(url, { method: "POST", body });
        seen.add(answer.status);
        await answer.text();
      } catch (error) {
        lost++;
        seen.add(String(error.cause?.code ?? error));
      }
    }
    console.log(lost, ...seen);
  }
}
main();
