#!/usr/bin/env bash
# The Trainer of transformers trains on all ranks, in a cell and in a program, and writes files that TensorBoard can
# read; so does SummaryWriter.
. "$(dirname "$0")/../lib.sh"

has_module transformers || has_module tensorboard || skip "no transformers and no tensorboard in $TORCH_PYTHON"
mount_torch -o size=2,gpus=none
export DDIP_MOUNT=$M PATH=$BUILD:$PATH HF_HUB_OFFLINE=1

if has_module tensorboard; then
	cell "from torch.utils.tensorboard import SummaryWriter
with SummaryWriter('$T/board/rank%d' % rank) as writer:
    for step in range(10):
        writer.add_scalar('loss', 1 / (step + 1), step)" || bad "SummaryWriter: $(cat "$G/traceback")"
	is 'each rank has written its events' "$(find "$T/board" -name 'events*' -size +0 | wc -l)" 2
else
	echo "SummaryWriter: no tensorboard in $TORCH_PYTHON"
fi

cat >"$T/train.py" <<-'END'
	import sys, torch
	from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

	class Counting(torch.utils.data.Dataset):
	    def __len__(self):
	        return 64
	    def __getitem__(self, i):
	        ids = (torch.arange(16) + i) % 32
	        return {"input_ids": ids, "labels": ids}

	torch.manual_seed(0)
	model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=16, n_embd=32, n_layer=1, n_head=2,
	                                   bos_token_id=0, eos_token_id=0))
	arguments = TrainingArguments(sys.argv[1], per_device_train_batch_size=4, num_train_epochs=2, use_cpu=True,
	                              learning_rate=3e-3, logging_steps=4, save_strategy="epoch", report_to=[],
	                              disable_tqdm=True)
	trainer = Trainer(model=model, args=arguments, train_dataset=Counting())
	trainer.train()
	assert arguments.world_size == 2, arguments.world_size
	steps = trainer.state.global_step
	losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
	weight = model.lm_head.weight.detach().clone()
	print("steps", steps, "falls", losses[-1] < losses[0])
END
if has_module transformers; then
	for how in run cell; do
		if [ $how = run ]; then
			out=$(ddip run -f "$T/train.py" "$T/$how" 2>"$T/err") || bad "a program: status $?: $(cat "$T/err")"
		else
			{ echo "# ddip: $T/train.py $T/$how" && cat "$T/train.py"; } | cat >"$G/cell" ||
				bad "a cell: $(cat "$G/traceback")"
			out=$(cat "$G/cells/last/rank0/stdout")
		fi
		like "Trainer divides the data over the ranks, $how" "$out" 'steps 16 falls True'
		ok cmp "$G/rank0/vars/weight.npy" "$G/rank1/vars/weight.npy"
		ok test -e "$T/$how/checkpoint-16/model.safetensors"
	done
else
	echo "Trainer: no transformers in $TORCH_PYTHON"
fi
