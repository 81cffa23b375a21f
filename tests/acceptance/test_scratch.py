from __future__ import annotations
import subprocess, time
from pathlib import Path
from tests.acceptance.pipelines import Pipeline
from tests.acceptance.ledger import events
from tests.acceptance.test_large_records import feed


def test_x(pipeline: Pipeline) -> None:
    log = Path("/tmp/death_scratch/x.log").open("a")
    twice, topic_of_twice = pipeline.add_fed_table("twice", 1)
    feed(pipeline, topic_of_twice, "zstd", "gzip")
    for turn in range(4):
        print("TURN", turn, time.ctime(), file=log, flush=True)
        allowing, topic = pipeline.add_fed_table(f"allowing{turn}", 1, limits={"record_size": "399MiB"})
        feed(pipeline, topic, "zstd")
        with pipeline.running("--until-caught-up") as run:
            for n in range(9):
                time.sleep(10)
                if not run.is_running:
                    break
            if run.is_running:
                print(subprocess.run(["jstack", str(run.find_jvm())], capture_output=True, text=True).stdout, file=log)
                print(
                    subprocess.run("ps aux | grep record_sizes", shell=True, capture_output=True, text=True).stdout,
                    file=log,
                )
                print(
                    subprocess.run(["jstat", "-gcutil", str(run.find_jvm())], capture_output=True, text=True).stdout,
                    file=log,
                )
            print(
                "RUNNING",
                run.is_running,
                "\n".join(l[:400] for l in run.lines if l.startswith("{")),
                file=log,
                flush=True,
            )
