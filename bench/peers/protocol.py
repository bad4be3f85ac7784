"""The protocol of README.md: requests are lines on stdin, answers are lines of JSON on stdout."""

import argparse
import json
import os
import sys
import time


class Parser(argparse.ArgumentParser):
    """Mistakes are exceptions, so that they become answers."""

    def error(self, message):
        raise ValueError(message)


def positive(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def use_threads(count):
    """To be called before any library is imported: they read it then."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(count)


def timed(run):
    """The answer to `run N`: N times run(), one after the other."""

    def answer(rest):
        if rest and not rest.isdecimal():
            raise ValueError(f"unknown request 'run {rest}'; there are: run, run N")
        start = time.perf_counter()
        for _ in range(int(rest or 1)):
            run()
        return {"seconds": time.perf_counter() - start}

    return answer


def serve(start):
    """start() returns the first answer and the requests: a function from the rest of the line to the
    answer for every first word. Whatever it raises is answered, and ends the process."""
    # What libraries print goes to stderr: only answers may go to stdout.
    stdout = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    say = lambda answer: print(json.dumps(answer), file=stdout, flush=True)
    try:
        ready, requests = start()
        say(ready)
        for line in sys.stdin:
            word, _, rest = line.strip().partition(" ")
            if word == "quit":
                return
            if word not in requests:
                raise ValueError(f"unknown request {line.strip()!r}; there are: "
                                 f"{', '.join([*requests, 'quit'])}")
            say(requests[word](rest))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(1)
    except Exception as error:
        if "QNA_PEERS_TRACE" in os.environ:
            import traceback
            traceback.print_exc()
        say({"error": " ".join(f"{type(error).__name__}: {error}".split())[:1000]})
        sys.exit(1)
