"""Stands in for `sacct`, for pictures: what Slurm's accounting would keep of the demo's job.

    python screenshots/accounting.py START END --helpformat
    python screenshots/accounting.py START END ... --delimiter=X -o FIELD,FIELD ...

START and END are epoch seconds. The requests are those of the demo's header; CPU time and memory of
the steps are near what the recording says.
"""

from __future__ import annotations

import sys

JOB = {
    "JobIDRaw": "4711", "JobID": "4711", "Cluster": "demo", "State": "COMPLETED",
    "ExitCode": "0:0", "DerivedExitCode": "0:0", "TimelimitRaw": "720", "Timelimit": "12:00:00",
    "Partition": "gpu-h100", "Account": "lab", "QOS": "normal", "User": "ada", "UID": "20001",
    "NNodes": "1", "NCPUS": "16", "AllocCPUS": "16", "ReqCPUS": "16", "NodeList": "gpu07",
    "ReqMem": "64G", "TotalCPU": "05:41.120", "JobName": "finetune-llama",
    "ReqTRES": "billing=16,cpu=16,gres/gpu:h100=4,gres/gpu=4,mem=64G,node=1",
    "AllocTRES": "billing=16,cpu=16,gres/gpu:h100=4,gres/gpu=4,mem=64G,node=1",
    "WorkDir": "/scratch/ada", "SubmitLine": "sbatch --gres=gpu:h100:4 --cpus-per-task=16 "
    "--mem=64G --time=12:00:00 finetune.sh",
}  # fmt: skip
BATCH = {
    **JOB, "JobIDRaw": "4711.batch", "JobID": "4711.batch", "JobName": "batch", "NTasks": "1",
    "ReqTRES": "", "AllocTRES": "cpu=16,gres/gpu:h100=4,gres/gpu=4,mem=64G,node=1",
    "Timelimit": "", "TimelimitRaw": "", "ReqMem": "", "MaxRSS": "2195M",
    "TRESUsageInTot": "cpu=00:05:41,mem=2195M", "TRESUsageInMax": "cpu=00:05:41,mem=2195M",
}  # fmt: skip


def main(start: float, end: float, arguments: list[str]) -> None:
    minutes, seconds = divmod(int(end - start), 60)
    times = dict.fromkeys(("Submit", "Eligible", "Start"), f"{start:.0f}")  # SLURM_TIME_FORMAT=%s
    times |= {"End": f"{end:.0f}", "Elapsed": f"00:{minutes:02d}:{seconds:02d}"}
    times["ElapsedRaw"] = f"{60 * minutes + seconds}"
    if "--helpformat" in arguments:
        print(*BATCH, *times)
        return
    delimiter = next(each for each in arguments if each.startswith("--delimiter=")).partition("=")[
        2
    ]
    names = arguments[arguments.index("-o") + 1].split(",")
    for row in (JOB, BATCH):
        print(delimiter.join({**row, **times}.get(name, "") for name in names))


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
