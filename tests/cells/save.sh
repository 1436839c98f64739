#!/usr/bin/env bash
# `save DIR` and `load DIR` between cells: all kinds of objects come back, into those that are there where they fit; what
# fails leaves the last one whole.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/classes.sh"

export XDG_CACHE_HOME=$T/cache
mkdir "$T/work"
mount_torch -o "size=2,grace=1,gpus=none,cwd=$T/work"

ctl() {
	errno write "$G/ctl" "$*"
}

# of what a verb could not keep, or why it failed
told() {
	grep -A1 "$1" "$G/error" | xargs
}

# only_ck DIR: is nothing beside it? A rank that gives up does not wait for the disk longer than 2 s.
only_ck() {
	[ "$(ls -A "$1")" = ck ]
}

is 'nothing to save' "$(ctl save ck)" ESRCH

cell "$classes"'

def step():
    optimizer.zero_grad()
    loss = ddp(torch.randn(4) + rank).square().sum()
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss.item()

scale = 2.0
torch.manual_seed(3)
model = Net()
ddp = DDP(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.9 ** n)
torch.manual_seed(7 + rank); random.seed(6 + rank); np.random.seed(7 + rank)
losses = [step() for _ in range(4)]
alike, mine = torch.arange(5), f"rank {rank}"
half, many = torch.full((3,), 1.5, dtype=torch.bfloat16), torch.zeros(1000, dtype=torch.int8)
waves, sparse = torch.tensor([1 + 2j]), torch.eye(3).to_sparse()
array, table = np.arange(6).reshape(2, 3), {"a": [1, (2, None)], "b": {3}}
config, mode, shared = Config(0.5, ["a"]), Mode.B, [alike]
twice = lambda x: x * scale
lock, lines = threading.Lock(), (line for line in "ab")' || give_up 'the objects'

everything='dict(losses=losses, alike=alike.tolist(), mine=mine, half=[half.dtype == torch.bfloat16, half.tolist()],
    waves=str(waves), sparse=[sparse.is_sparse, sparse.to_dense().tolist()], array=array.tolist(), table=repr(table),
    config=[config.lr, config.tags, type(config) is Config], mode=mode is Mode.B, shared=shared[0] is alike,
    twice=twice(3), model={n: t.tolist() for n, t in model.state_dict().items()}, ddp=ddp.module is model,
    optimizer=repr(optimizer.state_dict()), same=optimizer.param_groups[0]["params"][0] is model.lin.weight,
    scheduler=[scheduler.last_epoch, scheduler.optimizer is optimizer, scheduler.get_last_lr()],
    size=world_size, rank=rank)'
random='[random.random(), float(np.random.rand()), torch.rand(2).tolist()]'
look() {
	cell "r = $everything" || bad "$1: $(tail -n 2 "$G/error")"
	cat "$G/rank0/vars/r.json" "$G/rank1/vars/r.json" >"$2"
}
look 'before' "$T/before"
ok grep -q '"mine": "rank 1"' "$T/before"

: >"$G/error"
is 'save' "$(ctl save ck)" 0
like 'what is not kept' "$(told 'save ')" 'ranks 0,1 have not: lock: cannot pickle .*lock.* object.*lines: cannot pickle .*generator.* object'
like 'also in the directory' "$(cat "$T/work/ck/lost")" '^lock: cannot pickle .*
lines: cannot pickle .*$'
is 'its files' "$(cd "$T/work" && ls -A . ck | xargs)" '.: ck ck: lost manifest.json rank0.p5 rank1.p5'
is 'nobody else reads them' "$(find "$T/work/ck" -perm /077 | wc -l)" 0
like 'the format says what is a pickle' "$("$PLAIN_PYTHON" -c 'import json, sys
said = json.load(open(sys.argv[1]))
print(said["format"], said["size"], said["names"]["model"], [f["pickle"] for f in said["files"].values()])' \
	"$T/work/ck/manifest.json")" "^ddip-saved 1 2 \{'type': 'Net', 'ranks': \[0, 1\]\} \[True, True\]$"
like 'an event' "$(grep -c "save cell=[0-9]* ok $T/work/ck" "$G/events.last")" '^1$'

# of what can not be kept, the tensors and optimizers are, for objects that are there
cell 'class Trainer:
    def __init__(self):
        self.model, self.lines = torch.nn.Linear(2, 2), (line for line in "ab")
        self.optimizer = torch.optim.Adam(self.model.parameters())
trainer = Trainer()
trainer.model(torch.ones(2)).sum().backward(); trainer.optimizer.step()
inside = "repr(trainer.model.state_dict()) + repr(trainer.optimizer.state_dict())"
kept = eval(inside)'
is 'save' "$(ctl save trained)" 0
cell 'trainer.optimizer.step()
with torch.no_grad(): trainer.model.weight.zero_()'
is 'load' "$(ctl load trained)" 0
is 'its tensors and optimizer' "$(cell 'r = eval(inside) == kept'; cat "$G"/rank?/vars/r | xargs)" 'True True'
like 'is told' "$(tail -n 1 "$G/error")" 'trainer: only its tensors were copied, not trainer.lines: cannot pickle'
is 'back' "$(rm -r "$T/work/trained"; ctl load ck)" 0

# what the next steps would be
cell "r = [step() for _ in range(3)] + $random" || give_up 'the training'
cat "$G/rank0/vars/r" "$G/rank1/vars/r" >"$T/next"

# in place: the objects stay the same ones
cell 'ids = [id(each) for each in (model, ddp, optimizer, Net, model.lin.weight, alike)]
losses = mine = config = mode = None; extra = 5; del waves'
is 'load' "$(ctl load ck)" 0
look 'in place' "$T/now"
ok cmp "$T/before" "$T/now"
is 'the same objects' "$(cell 'r = ids == [id(each) for each in (model, ddp, optimizer, Net, model.lin.weight, alike)], extra'; cat "$G/rank1/vars/r")" '(True, 5)'
is 'load again' "$(ctl load "$T/work/ck")" 0
cell "r = [step() for _ in range(3)] + $random" || bad 'the training after load'
ok cmp <(cat "$G/rank0/vars/r" "$G/rank1/vars/r") "$T/next"

# new processes: all is made again, and the training goes on as if nothing had been
ok eval 'echo restart >"$G/ctl"'
is 'after a restart' "$(ctl load ck)" 0
look 'after a restart' "$T/now"
ok cmp "$T/before" "$T/now"
cell 'ctl = None'
is 'load again' "$(ctl load ck)" 0
cell "r = [step() for _ in range(3)] + $random" || bad "the training after a restart: $(cat "$G/traceback")"
ok cmp <(cat "$G/rank0/vars/r" "$G/rank1/vars/r") "$T/next"

# over the old one, which stays whole if that fails
cell 'second = 2'
look 'the second one' "$T/second"
is 'over it' "$(ctl save ck)" 0
until_true only_ck "$T/work"
ok grep -q '"second"' "$T/work/ck/manifest.json"
cell 'third, large = 3, torch.ones(1 << 20)
import resource
before = resource.getrlimit(resource.RLIMIT_FSIZE)
if rank: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))'
is 'a full disk' "$(ctl save ck)" EFBIG
like 'is told' "$(tail -n 2 "$G/error")" "$T/work/ck: .*File too large"
cell 'resource.setrlimit(resource.RLIMIT_FSIZE, before)'
until_true only_ck "$T/work"
ok grep -q '"second"' "$T/work/ck/manifest.json"
fails grep -q '"third"' "$T/work/ck/manifest.json"
if [ "$(id -u)" -eq 0 ] && mkdir "$T/small" && mount -t tmpfs -o size=12m tmpfs "$T/small" 2>/dev/null; then
	finish() {
		umount "$T/small"
	}
	is 'a small disk' "$(ctl "save $T/small/ck")" 0
	cell 'larger = torch.ones(1 << 19)'
	is 'and a full one' "$(ctl "save $T/small/ck")" ENOSPC
	like 'is told' "$(tail -n 1 "$G/error")" "$T/small/ck.* No space left on device"
	until_true only_ck "$T/small"
	cell 'del larger'
	is 'the last one is whole' "$(ctl "load $T/small/ck")" 0
	ok mount -o remount,size=20m "$T/small"
	for _ in 1 2 3 4; do
		is 'again, where there is room for two' "$(ctl "save $T/small/ck")" 0
	done
fi
cell 'import os, signal, time
class Slow:
    def __init__(self, act): self.act = act
    def __reduce__(self):
        if self.act == "kill": os.kill(os.getpid(), signal.SIGKILL)
        if self.act == "wait": time.sleep(1000)
        return Slow, ("",)
slow = Slow("wait" if rank else "")'
ctl save ck >"$T/outcome" &
writer=$!
rank0_has_written() {
	[ "$(find "$T/work" -path '*/ck.tmp-*/rank0.json')" ]
}
until_true rank0_has_written
echo interrupt >"$G/ctl"
wait "$writer"
is 'an interrupt' "$(cat "$T/outcome")" EINTR
until_true only_ck "$T/work"
for rank in 1 0; do
	cell 'import os, signal
class Slow:
    def __init__(self, act): self.act = act
    def __reduce__(self):
        if self.act == "kill": os.kill(os.getpid(), signal.SIGKILL)
        return Slow, ("",)'
	cell "slow = Slow('kill' if rank == $rank else '')"
	is "rank $rank dies of it" "$(ctl save ck)" EHOSTDOWN
	ok grep -q '"second"' "$T/work/ck/manifest.json"
	cell pass
	is 'then it is loaded' "$(ctl load ck)" 0
	look "after rank $rank died" "$T/now"
	ok cmp "$T/second" "$T/now"
done
cp -r "$T/work/ck" "$T/work/ck.old-1"
cp -r "$T/work/ck" "$T/work/ck.tmp-1"
is 'the next one cleans up' "$(ctl save ck)" 0
until_true only_ck "$T/work"

# what is refused
is 'nothing there' "$(ctl load none)" ENOENT
like 'by name' "$(tail -n 2 "$G/error")" "$T/work/none: No such file or directory"
mkdir "$T/work/other"
touch "$T/work/other/file"
is 'not ours' "$(ctl save other)" ENOTEMPTY
is 'nor to be loaded' "$(ctl load other)" EINVAL
ln -s ck "$T/work/link"
is 'a link' "$(ctl load link)" ELOOP
is 'no directory' "$(ctl save other/file)" ENOTDIR
is 'one that others write' "$(chmod go+w "$T/work/ck"; ctl load ck; chmod go-w "$T/work/ck")" EPERM
is 'a file that others write' "$(chmod go+w "$T/work/ck/rank1.p5"; ctl load ck; chmod go-w "$T/work/ck/rank1.p5")" EPERM
if [ "$(id -u)" -eq 0 ]; then
	is 'one of another user' "$(chown 12345 "$T/work/ck/rank1.p5"; ctl load ck; chown 0 "$T/work/ck/rank1.p5")" EPERM
	like 'is told' "$(tail -n 2 "$G/error")" 'it belongs to user 12345, and this rank runs as 0'
fi
truncate -s -1 "$T/work/ck/rank1.p5"
is 'a file that was cut' "$(ctl load ck)" EBADMSG
is 'a format to come' "$(sed -i 's/ddip-saved 1/ddip-saved 2/' "$T/work/ck/manifest.json"; ctl load ck)" EBADMSG
is 'in the mount' "$(ctl save "$G/vars/x")" EINVAL
is 'no words' "$(ctl save)" EINVAL
is 'the objects are untouched' "$(look 'at the end' "$T/now"; cmp "$T/second" "$T/now" && echo same)" same
