/*
 * torch's operators on the fake CUDA runtime: a boxed function takes the place of every CUDA kernel
 * of aten that the CPU has a kernel for, and runs that on views of the memory of the device. An
 * operator behind work of its stream, or one that the test's words make slow, returns at once: its
 * Meta kernel tells the shapes, and its CPU kernel becomes a task of the stream. Autograd,
 * autocast, the allocator, views and streams stay torch's own.
 */
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cstdio>
#include <pybind11/pybind11.h>
#include <set>
#include <torch/library.h>

extern "C" {
void *fake_cuda_alias(const void *p);
int fake_cuda_is_idle(cudaStream_t s);
long fake_cuda_slow_us(const char *op);
int fake_cuda_failure(const char *op);
void fake_cuda_spin(long us);
void fake_cuda_lose(unsigned error);
void fake_cuda_enqueue(cudaStream_t s, void (*fn)(void *), void *arg);
}

namespace
{
using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

/* How many random numbers of the generator an operator uses up. */
const uint64_t OFFSET = 4;

/* A tensor of the CPU that is the memory of this one. */
Tensor
view_of(const Tensor &t)
{
	auto options = t.options().device(c10::kCPU).requires_grad(false);

	if (t.numel() == 0 || !t.has_storage())
		return at::empty_strided(t.sizes(), t.strides(), options);
	return at::from_blob(fake_cuda_alias(t.const_data_ptr()), t.sizes(), t.strides(), options);
}

/* The arguments of a call on another device: the CPU, where they are views of the memory, or Meta.
 */
class Arguments
{
      public:
	std::vector<std::pair<Tensor, Tensor>> pairs; /* (CUDA, other) */
	c10::Device device{c10::kCPU};		      /* the CUDA device */

	explicit Arguments(c10::DeviceType to) : to_(to)
	{
	}

	IValue in(const IValue &v);
	/* The tensor for a result: an argument itself, or undefined. */
	Tensor same(const Tensor &result) const;

      private:
	c10::DeviceType to_;

	Tensor in(const Tensor &t);
	void see(c10::Device d);
	IValue in_list(const IValue &v);
};

void
Arguments::see(c10::Device d)
{
	if (d.is_cuda() && !device.is_cuda())
		device = d;
}

Tensor
Arguments::in(const Tensor &t)
{
	Tensor other = t;

	if (!t.defined() || (!t.is_cuda() && to_ == c10::kCPU))
		return t;
	for (auto &pair : pairs)
		if (pair.first.is_same(t))
			return pair.second;
	see(t.device());
	if (to_ == c10::kCPU)
		other = view_of(t);
	else if (t.is_cuda())
		other = at::empty_strided(
		    t.sizes(), t.strides(), t.options().device(to_).requires_grad(false));
	other._set_conj(t.is_conj());
	other._set_neg(t.is_neg());
	if (t.unsafeGetTensorImpl()->is_wrapped_number())
		other.unsafeGetTensorImpl()->set_wrapped_number(true);
	pairs.emplace_back(t, other);
	return other;
}

IValue
Arguments::in_list(const IValue &v)
{
	if (v.isTensorList()) {
		c10::List<Tensor> list;

		for (const Tensor &t : v.toTensorVector())
			list.push_back(in(t));
		return list;
	}
	if (v.toList().elementType()->kind() != c10::TypeKind::OptionalType)
		return v;
	c10::List<std::optional<Tensor>> list;
	for (const IValue &e : v.toListRef())
		list.push_back(e.isTensor() ? std::optional(in(e.toTensor())) : std::nullopt);
	return list;
}

IValue
Arguments::in(const IValue &v)
{
	if (v.isTensor())
		return in(v.toTensor());
	if (v.isDevice()) {
		see(v.toDevice());
		return v.toDevice().is_cuda() ? IValue(c10::Device(to_)) : v;
	}
	if (v.isGenerator() && v.toGenerator().device().is_cuda()) {
		see(v.toGenerator().device());
		return IValue();
	}
	return v.isList() ? in_list(v) : v;
}

Tensor
Arguments::same(const Tensor &result) const
{
	for (auto &pair : pairs)
		if (pair.second.is_same(result))
			return pair.first;
	return Tensor();
}

/* The tensors among the results, which are at the end of the stack. */
std::vector<Tensor>
results(const Stack &stack, const c10::FunctionSchema &schema)
{
	std::vector<Tensor> all;

	for (size_t i = stack.size() - schema.returns().size(); i < stack.size(); i++) {
		if (stack[i].isTensor())
			all.push_back(stack[i].toTensor());
		else if (stack[i].isTensorList())
			for (const Tensor &t : stack[i].toTensorVector())
				all.push_back(t);
	}
	return all;
}

/* A call of an operator on CUDA tensors. */
class Call
{
      public:
	Call(const c10::OperatorHandle &op, Stack *stack);
	void run();

      private:
	const c10::OperatorHandle &op_;
	const c10::FunctionSchema &schema_;
	Stack *stack_;
	size_t base_;		    /* of the arguments in the stack */
	std::vector<IValue> given_; /* the arguments, which live until the call returns */
	Arguments cpu_{c10::kCPU};

	void set_arguments(Arguments &to);
	void set_generator();
	void wait() const;
	void run_now();
	void take_results(const Arguments &from);
	void resize_outputs(const Arguments &from, bool with_bytes) const;
	bool find_shapes();
	bool run_later(long us, unsigned code);
	void assert_failed(const c10::Error &e);
	Tensor output(const Tensor &result, const Arguments &from) const;
};

Call::Call(const c10::OperatorHandle &op, Stack *stack)
    : op_(op), schema_(op.schema()), stack_(stack),
      base_(stack->size() - schema_.arguments().size()),
      given_(stack->begin() + (ptrdiff_t)base_, stack->end())
{
}

void
Call::set_arguments(Arguments &to)
{
	stack_->resize(base_);
	for (const IValue &v : given_)
		stack_->push_back(to.in(v));
}

/* A generator of the CPU, seeded with the state of the one of CUDA, which advances. */
void
Call::set_generator()
{
	for (size_t i = 0; i < given_.size(); i++) {
		if (schema_.arguments()[i].name() != "generator")
			continue;
		bool own = given_[i].isGenerator() && given_[i].toGenerator().device().is_cuda();
		at::Generator g = own ? given_[i].toGenerator()
				      : at::globalContext().defaultGenerator(cpu_.device);
		std::lock_guard<std::mutex> lock(g.mutex());
		uint64_t offset = g.get_offset();

		(*stack_)[base_ + i] =
		    at::detail::createCPUGenerator(g.current_seed() * 1000003 + offset);
		g.set_offset(offset + OFFSET);
	}
}

/* Until the current streams of all devices in use are idle. */
void
Call::wait() const
{
	std::set<c10::DeviceIndex> devices{cpu_.device.index()};

	for (auto &pair : cpu_.pairs)
		devices.insert(pair.first.device().index());
	for (c10::DeviceIndex d : devices)
		c10::cuda::getCurrentCUDAStream(d).synchronize();
}

Tensor
Call::output(const Tensor &result, const Arguments &from) const
{
	Tensor same = from.same(result);

	if (!result.defined() || same.defined())
		return same;
	return at::empty_strided(
	    result.sizes(), result.strides(), result.options().device(cpu_.device));
}

/* `out=` may have been resized. */
void
Call::resize_outputs(const Arguments &from, bool with_bytes) const
{
	for (auto &[cuda, other] : from.pairs) {
		if (cuda.sizes() == other.sizes())
			continue;
		at::native::resize_output(cuda, other.sizes());
		if (with_bytes && other.numel())
			view_of(cuda).copy_(other);
	}
}

/* The results in the stack become CUDA tensors. */
void
Call::take_results(const Arguments &from)
{
	bool has_bytes = &from == &cpu_; /* others have shapes only */
	auto take = [&](const Tensor &result) {
		if (!result.defined() || result.is_cpu() != has_bytes)
			return result;
		Tensor t = output(result, from);
		if (has_bytes && !from.same(result).defined() && result.numel())
			view_of(t).copy_(result);
		return t;
	};

	for (size_t i = stack_->size() - schema_.returns().size(); i < stack_->size(); i++) {
		IValue &v = (*stack_)[i];

		if (v.isTensor()) {
			v = take(v.toTensor());
		} else if (v.isTensorList()) {
			c10::List<Tensor> list;

			for (const Tensor &t : v.toTensorVector())
				list.push_back(take(t));
			v = list;
		}
	}
	resize_outputs(from, has_bytes);
}

void
Call::run_now()
{
	at::AutoDispatchBelowADInplaceOrView below;

	wait();
	try {
		op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack_);
	} catch (const c10::IndexError &e) {
		assert_failed(e);
		return;
	}
	take_results(cpu_);
}

/* Replaces the arguments in the stack by results of the right shapes. False: Meta cannot tell them;
 * the stack has to be filled again. */
bool
Call::find_shapes()
{
	at::AutoDispatchBelowADInplaceOrView below;
	Arguments meta(c10::kMeta);

	set_arguments(meta);
	try {
		op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), stack_);
	} catch (pybind11::error_already_set &e) { /* of a Meta kernel in Python */
		pybind11::gil_scoped_acquire gil;

		if (!e.matches(PyExc_Exception))
			throw; /* an interrupt, which is the program's */
		return false;
	} catch (const std::exception &) {
		return false;
	}
	for (const Tensor &t : results(*stack_, schema_))
		for (auto &pair : meta.pairs) /* a view */
			if (t.defined() && !t.is_same(pair.second) && t.is_alias_of(pair.second))
				return false;
	take_results(meta);
	return true;
}

/* On a GPU, a kernel finds this out by an assertion: the call returns, later ones fail. */
void
Call::assert_failed(const c10::Error &e)
{
	bool known = find_shapes();

	fprintf(stderr, "Assertion `index out of bounds` failed in %s: %s\n",
	    schema_.name().c_str(), e.what_without_backtrace());
	fake_cuda_lose(cudaErrorAssert);
	if (!known)
		wait(); /* raises */
}

/* A call whose kernel runs in its stream. */
struct Later {
	c10::OperatorHandle op;
	Stack arguments;
	std::vector<Tensor> outputs; /* memory of the device as the CPU sees it */
	long us;		     /* how much longer it takes */
	unsigned code;		     /* that it fails with */
};

void
run_kernel(Later *later)
{
	at::AutoDispatchBelowADInplaceOrView below;
	at::NoGradGuard no_grad;

	fake_cuda_spin(later->us);
	if (later->code) {
		fake_cuda_lose(later->code);
		return;
	}
	later->op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &later->arguments);
	std::vector<Tensor> found = results(later->arguments, later->op.schema());
	for (size_t i = 0; i < found.size(); i++) {
		Tensor &to = later->outputs[i];

		if (found[i].defined() && found[i].numel() && found[i].data_ptr() != to.data_ptr())
			to.copy_(found[i]);
	}
}

void
run_in_stream(void *arg)
{
	std::unique_ptr<Later> later((Later *)arg);

	try {
		run_kernel(later.get());
	} catch (const c10::IndexError &e) {
		fprintf(stderr, "Assertion `index out of bounds` failed: %s\n",
		    e.what_without_backtrace());
		fake_cuda_lose(cudaErrorAssert);
	} catch (const std::exception &e) {
		fprintf(stderr, "the kernel of %s failed: %s\n", later->op.schema().name().c_str(),
		    e.what());
		fake_cuda_lose(cudaErrorLaunchFailure);
	}
}

/* False: it is to run now. */
bool
Call::run_later(long us, unsigned code)
{
	auto later = std::make_unique<Later>(op_, Stack(), std::vector<Tensor>(), us, code);

	for (auto &pair : cpu_.pairs)
		if (pair.first.device() != cpu_.device)
			return false;
	for (const IValue &v :
	    std::vector<IValue>(stack_->begin() + (ptrdiff_t)base_, stack_->end())) {
		bool may_change = v.isTensor() && v.toTensor().defined() &&
				  given_[later->arguments.size()].isTensor() &&
				  !given_[later->arguments.size()].toTensor().is_cuda();

		later->arguments.push_back(may_change ? IValue(v.toTensor().clone()) : v);
	}
	if (!find_shapes())
		return false;
	for (const Tensor &t : results(*stack_, schema_))
		later->outputs.push_back(t.defined() ? view_of(t) : t);
	fake_cuda_enqueue(c10::cuda::getCurrentCUDAStream(), run_in_stream, later.release());
	return true;
}

void
Call::run()
{
	const char *name = schema_.name().c_str();
	long us = fake_cuda_slow_us(name);
	unsigned code = (unsigned)fake_cuda_failure(name);

	set_arguments(cpu_);
	if (!cpu_.device.is_cuda())
		cpu_.device = c10::Device(c10::kCUDA, c10::cuda::current_device());
	c10::cuda::CUDAGuard guard(cpu_.device);
	c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
	set_generator();
	if (stream.query() && !us && !code)
		return run_now();
	Stack arguments(stack_->begin() + (ptrdiff_t)base_, stack_->end());
	if (run_later(us, code))
		return;
	stack_->resize(base_);
	stack_->insert(stack_->end(), arguments.begin(), arguments.end());
	run_now();
}

void
run(const c10::OperatorHandle &op, c10::DispatchKeySet, Stack *stack)
{
	Call(op, stack).run();
}

/* Copies that need no kernel, and those from and to the host, are torch's own. */
Tensor &
copy_(Tensor &self, const Tensor &from, bool non_blocking)
{
	bool plain = self.scalar_type() == from.scalar_type() && self.sizes() == from.sizes() &&
		     self.is_contiguous() && from.is_contiguous() &&
		     self.is_conj() == from.is_conj() && self.is_neg() == from.is_neg();
	auto work = [](void *arg) {
		std::unique_ptr<std::pair<Tensor, Tensor>> both((std::pair<Tensor, Tensor> *)arg);
		at::AutoDispatchBelowADInplaceOrView below;

		both->first.copy_(both->second);
	};

	if (plain || !self.is_cuda() || !from.is_cuda())
		return at::native::copy_(self, from, non_blocking);
	Arguments cpu(c10::kCPU);
	auto *views =
	    new std::pair(cpu.in(IValue(self)).toTensor(), cpu.in(IValue(from)).toTensor());
	c10::cuda::CUDAGuard guard(self.device());
	if (from.device() != self.device())
		c10::cuda::getCurrentCUDAStream(from.device().index()).synchronize();
	if (c10::cuda::getCurrentCUDAStream().query())
		work(views);
	else
		fake_cuda_enqueue(c10::cuda::getCurrentCUDAStream(), work, views);
	return self;
}

/* Views, allocations, and what needs only a copy. */
const std::set<std::string> torchs_own{"empty", "empty_strided", "as_strided", "view",
    "_reshape_alias", "unfold", "resize_", "set_", "view_as_real", "view_as_complex",
    "record_stream", "_local_scalar_dense", "is_set_to", "_pin_memory", "is_pinned", "alias",
    "copy_", "_efficientzerotensor", "_resize_output_", "_nested_tensor_from_mask", "_coalesced_",
    "is_coalesced", "sparse_dim", "dense_dim"};

bool
runs_on_cpu(const c10::OperatorHandle &op)
{
	for (auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CompositeExplicitAutograd,
		 c10::DispatchKey::CompositeExplicitAutogradNonFunctional,
		 c10::DispatchKey::CompositeImplicitAutograd})
		if (op.hasKernelForDispatchKey(key))
			return true;
	return false;
}

struct Quiet : c10::WarningHandler {
	void process(const c10::Warning &) override
	{
	}
};

struct Registration {
	torch::Library library{
	    torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__};

	/* torch warns that a kernel is replaced. What has no kernel on the CPU, cuDNN and fused
	 * attention, is not used. */
	Registration()
	{
		Quiet quiet;
		c10::WarningUtils::WarningHandlerGuard guard(&quiet);
		auto &dispatcher = c10::Dispatcher::singleton();
		auto names = dispatcher.getRegistrationsForDispatchKey(c10::DispatchKey::CUDA);

		names.push_back({"aten::convolution", ""});
		names.push_back({"aten::convolution_overrideable", ""});
		for (auto &name : names) {
			bool aten = name.name.rfind("aten::", 0) == 0;
			auto op = dispatcher.findOp(name);

			if (!aten || torchs_own.count(name.name.substr(6)) || !op ||
			    !op->hasSchema() || !runs_on_cpu(*op))
				continue;
			std::string full = name.name.substr(6);
			if (!name.overload_name.empty())
				full += "." + name.overload_name;
			library.impl(
			    full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run>());
		}
		library.impl("copy_", TORCH_FN(copy_));
		at::globalContext().setUserEnabledCuDNN(false);
		at::globalContext().setSDPUseFlash(false);
		at::globalContext().setSDPUseMemEfficient(false);
		at::globalContext().setSDPUseCuDNN(false);
	}
} &registration = *new Registration;
} // namespace
