"""Judges a URL with REDbot and httplint: headers, conditions, ranges and negotiation.

Prints what is good, bad or doubtful about it; exits with 1 if anything is bad or a warning, or if
the URL could not be fetched and judged whole. Needs `pip install redbot`.
"""

import sys
from configparser import ConfigParser

import thor
from httplint.note import levels
from redbot.resource import HttpResource

# Most seconds a judgement may take.
PATIENCE = 100

def judge(url):
    """The resource at the URL, its checks with conditions, ranges and codings included."""
    config = ConfigParser()
    config.read_dict({"redbot": {"enable_local_access": "True"}})
    resource = HttpResource(config["redbot"])
    resource.set_request(url)

    @thor.events.on(resource)
    def check_done():
        thor.stop()

    resource.check()
    thor.schedule(PATIENCE, thor.stop)
    thor.run()
    return resource


def main(url):
    resource = judge(url)
    notes = resource.response.notes
    failed = not resource.response.complete or not notes
    if failed:
        print("FAILED: not fetched whole:", repr(resource.fetch_error))
    for note in notes:
        name = type(note).__name__
        wrong = note.level in (levels.BAD, levels.WARN)
        failed = failed or wrong
        print(f"{'FAILED: ' if wrong else ''}{note.level.value}: {name}: {note.summary}")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: lint.py URL")
    sys.exit(main(sys.argv[1]))
