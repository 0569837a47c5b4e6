"""One `faber serve` process, a client that keeps its connection open, and the server's processor time."""
import glob, http.client, json, os, re, signal, subprocess, tempfile, time

BIN = os.environ.get("FABER_BIN", "TMP/faber-plain")


class Server:
    def __init__(self, config, store="memory:", cpu=None):
        self.folder = tempfile.TemporaryDirectory(prefix="measure-")
        file = os.path.join(self.folder.name, "config.json")
        json.dump(config, open(file, "w"))
        self.log = open(os.path.join(self.folder.name, "log"), "w+")
        store = store.replace("DIR", self.folder.name)
        pin = ["taskset", "-c", str(cpu)] if cpu is not None else []
        env = {**os.environ, "HOME": self.folder.name, "XDG_DATA_HOME": self.folder.name}
        self.process = subprocess.Popen(["nice", "-n", os.environ.get("NICE", "10"), *pin, BIN, "--store", store, "--config", file, "serve", "--listen", "127.0.0.1:0"], env=env,
                                        cwd=self.folder.name, stdout=self.log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        found = None
        for _ in range(600):
            found = re.search(r"listening on (?:https?://)?([\w.:\[\]]+:\d+)", open(self.log.name).read())
            if found or self.process.poll() is not None:
                break
            time.sleep(0.1)
        if not found:
            raise SystemExit("the server did not start:\n" + open(self.log.name).read()[-2000:])
        self.connection = http.client.HTTPConnection(found.group(1), timeout=300)

    def ask(self, query, variables=None):
        body = json.dumps({"query": query, "variables": variables or {}})
        self.connection.request("POST", "/graphql", body, {"content-type": "application/json", "accept": "application/json"})
        return json.loads(self.connection.getresponse().read())

    def cpu_ms(self):
        """Processor time of all threads of the server, in ms (nice and taskset exec the server, so the id is its own)."""
        total = 0
        for file in glob.glob(f"/proc/{self.process.pid}/task/*/schedstat"):
            try:
                total += int(open(file).read().split()[0])
            except OSError:
                pass
        return total / 1e6

    def close(self):
        self.connection.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()
        self.folder.cleanup()


def percentile(values, share):
    """Nearest rank."""
    values = sorted(values)
    return values[max(0, min(len(values) - 1, -(-len(values) * share // 100) - 1))]
