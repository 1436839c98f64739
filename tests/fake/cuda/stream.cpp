/* Streams are queues, each with a thread that starts with the first task that cannot run at once.
 */
#include "runtime.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <unistd.h>

namespace fake
{
CUstream_st *
stream(cudaStream_t s)
{
	bool is_default = !s || s == cudaStreamLegacy || s == cudaStreamPerThread;

	s = is_default ? &self.devices[current].legacy : s;
	if (s->ends) {
		fprintf(stderr, "a stream is used after cudaStreamDestroy()\n");
		abort();
	}
	return s;
}

static void
reach(CUevent_st *event, uint64_t number)
{
	if (event->reached >= number)
		return;
	event->reached = number;
	event->at = Clock::now();
}

static bool
can_run(CUstream_st *s)
{
	if (s->tasks.empty())
		return s->ends;
	Task &t = s->tasks.front();
	return self.lost || !t.waits_for || t.waits_for->reached >= t.number;
}

/* After the context is lost, nothing that is queued runs. */
static void
work(CUstream_st *s)
{
	Lock lock(self.lock);

	current = s->device;
	for (;;) {
		self.changed.wait(lock, [s] { return can_run(s); });
		if (s->tasks.empty())
			break;
		Task t = std::move(s->tasks.front());
		s->tasks.pop_front();
		s->busy = true;
		if (t.run && !self.lost) {
			lock.unlock();
			t.run();
			t.run = nullptr;
			lock.lock();
		}
		if (t.records)
			reach(t.records, t.number);
		s->busy = false;
		self.changed.notify_all();
	}
}

void
enqueue(CUstream_st *s, Task task)
{
	s->tasks.push_back(std::move(task));
	if (!s->started)
		std::thread(work, s).detach();
	s->started = true;
	self.changed.notify_all();
}

void
run_or_enqueue(CUstream_st *s, std::function<void()> run)
{
	Task task;

	if (s->idle() && !self.delay_us) {
		run();
		return;
	}
	task.run = [run] {
		usleep(self.delay_us);
		run();
	};
	enqueue(s, std::move(task));
}

void
drain(Lock &lock, CUstream_st *s)
{
	self.changed.wait(lock, [s] { return s->idle() || self.lost; });
}

void
drain_device(Lock &lock, int device)
{
	self.changed.wait(lock, [device] {
		bool idle = self.devices[device].legacy.idle();

		for (CUstream_st *s : self.streams)
			idle = idle && (s->device != device || s->idle());
		return idle || self.lost;
	});
}
} // namespace fake

using namespace fake;

extern "C" {
cudaError_t
cudaStreamCreateWithPriority(cudaStream_t *s, unsigned, int priority)
{
	ENTER();
	*s = new CUstream_st;
	(*s)->device = current;
	(*s)->priority = priority;
	self.streams.push_back(*s);
	return cudaSuccess;
}

cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
	ENTER();
	call.lock.unlock();
	return cudaStreamCreateWithPriority(s, flags, 0);
}

cudaError_t
cudaStreamCreate(cudaStream_t *s)
{
	return cudaStreamCreateWithPriority(s, 0, 0);
}

cudaError_t
cudaStreamDestroy(cudaStream_t s)
{
	ENTER();
	self.streams.erase(
	    std::remove(self.streams.begin(), self.streams.end(), s), self.streams.end());
	s->ends = true;
	self.changed.notify_all();
	return cudaSuccess;
}

cudaError_t
cudaStreamQuery(cudaStream_t s)
{
	ENTER();
	return stream(s)->idle() ? cudaSuccess : error(cudaErrorNotReady);
}

cudaError_t
cudaStreamSynchronize(cudaStream_t s)
{
	ENTER();
	drain(call.lock, stream(s));
	return lost_error();
}

cudaError_t
cudaDeviceSynchronize(void)
{
	ENTER();
	drain_device(call.lock, current);
	return lost_error();
}

cudaError_t
cudaStreamGetPriority(cudaStream_t s, int *priority)
{
	ENTER();
	*priority = stream(s)->priority;
	return cudaSuccess;
}

/* Nothing is ever captured. */
cudaError_t
cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *status)
{
	ENTER();
	*status = cudaStreamCaptureStatusNone;
	return cudaSuccess;
}

cudaError_t
cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus *status, unsigned long long *id,
    cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges, size_t *n)
{
	ENTER();
	*status = cudaStreamCaptureStatusNone;
	if (id)
		*id = 0;
	if (graph)
		*graph = nullptr;
	if (nodes)
		*nodes = nullptr;
	if (edges)
		*edges = nullptr;
	if (n)
		*n = 0;
	return cudaSuccess;
}

cudaError_t
cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode)
{
	static thread_local cudaStreamCaptureMode own = cudaStreamCaptureModeGlobal;

	ENTER();
	std::swap(own, *mode);
	return cudaSuccess;
}

cudaError_t
cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned)
{
	Task task;

	ENTER();
	task.waits_for = event;
	task.number = event->recorded;
	if (event->reached < event->recorded)
		enqueue(stream(s), std::move(task));
	return cudaSuccess;
}

cudaError_t
cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg)
{
	Task task;

	ENTER();
	task.run = [=] { fn(arg); };
	enqueue(stream(s), std::move(task));
	return cudaSuccess;
}

cudaError_t
cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t fn, void *arg, unsigned)
{
	Task task;

	ENTER();
	task.run = [=] { fn(s, cudaSuccess, arg); };
	enqueue(stream(s), std::move(task));
	return cudaSuccess;
}

/* ---- events ---- */

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
	ENTER();
	*event = new CUevent_st;
	return cudaSuccess;
}

cudaError_t
cudaEventCreate(cudaEvent_t *event)
{
	return cudaEventCreateWithFlags(event, 0);
}

cudaError_t
cudaEventDestroy(cudaEvent_t)
{
	ENTER();
	return cudaSuccess;
}

cudaError_t
cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t s, unsigned)
{
	Task task;

	ENTER();
	task.records = event;
	task.number = ++event->recorded;
	if (stream(s)->idle())
		reach(event, task.number);
	else
		enqueue(stream(s), std::move(task));
	return cudaSuccess;
}

cudaError_t
cudaEventRecord(cudaEvent_t event, cudaStream_t s)
{
	ENTER();
	call.lock.unlock();
	return cudaEventRecordWithFlags(event, s, 0);
}

cudaError_t
cudaEventQuery(cudaEvent_t event)
{
	ENTER();
	return event->reached >= event->recorded ? cudaSuccess : error(cudaErrorNotReady);
}

cudaError_t
cudaEventSynchronize(cudaEvent_t event)
{
	ENTER();
	uint64_t number = event->recorded;
	self.changed.wait(call.lock, [=] { return event->reached >= number || self.lost; });
	return lost_error();
}

cudaError_t
cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
	ENTER();
	*ms = std::chrono::duration<float, std::milli>(to->at - from->at).count();
	return cudaSuccess;
}
}
