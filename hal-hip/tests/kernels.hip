// Kernels with many kinds of arguments, and a stand-in for the runtime that shows what the compiler's host side passes.
//
// As a library (the default) this is what a HIP program is: its constructors register the kernels, and launching them
// calls hipLaunchKernel. All of that arrives here, at the functions at the end, and is told to the test. True sizes and
// offsets come from the language (sizeof, alignof), not from any metadata.
//
// -DLIBRARY adds what needs the device libraries: printf and local memory.
#include <hip/hip_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <tuple>
#include <vector>

template <size_t N>
struct Bytes {
    unsigned char bytes[N];
};
struct Empty {};
struct alignas(16) Aligned16 {
    char byte;
};
struct alignas(64) Aligned64 {
    float values[3];
};
struct Mixed {
    char a;
    double b;
    short c;
};
struct Nested {
    Mixed mixed;
    float3 vector;
    int* pointer;
};
enum Small : unsigned char { one, two };
typedef void (*Function)(int);

__global__ void nothing() {}
__global__ void scalars(bool a, char b, short c, int d, long long e, float f, double g, unsigned char h) {}
__global__ void pointers(int* a, const float* b, void* c, Function d, void** e) {}
__global__ void vectors(float3 a, char3 b, double2 c, float4 d, uchar4 e, short3 f, double3 g) {}
__global__ void structs(Mixed a, Nested b, Empty c, Small d, Mixed e) {}
__global__ void aligned(char a, Aligned16 b, char c, Aligned64 d, char e) {}
__global__ void bytes_1(Bytes<1> a) {}
__global__ void bytes_odd(Bytes<3> a, Bytes<5> b, Bytes<7> c, int d, Bytes<17> e) {}
__global__ void bytes_255(Bytes<255> a) {}
__global__ void bytes_256(Bytes<256> a) {}
__global__ void bytes_257(Bytes<257> a, char b) {}
__global__ void bytes_4088(Bytes<4088> a, int* b) {}
__global__ void bytes_4096(Bytes<4096> a) {}
__global__ void used(int* out, int a, Bytes<12> b) { out[0] = a + b.bytes[3]; }
template <typename T, int N>
__global__ void templated(T value, T* out, Bytes<N> more) { out[0] = value; }
template __global__ void templated<char, 2>(char, char*, Bytes<2>);
template __global__ void templated<double, 9>(double, double*, Bytes<9>);
namespace {
__global__ void hidden_name(float a, int* b) { b[0] = static_cast<int>(a); }
}
#ifdef LIBRARY
__global__ void prints(int a, const char* b, double c) { printf("%d %s %f\n", a, b, c); }
__global__ void local_memory(float* out, char n) {
    extern __shared__ float shared[];
    shared[threadIdx.x] = out[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = shared[n - threadIdx.x] * blockDim.x;
}
#endif

// Too large for the copy, but legal.
__global__ void too_large(Bytes<4096> a, char b) {}

#ifndef CODE_OBJECT
namespace {

struct Launch {
    const void* function;
    std::vector<size_t> sizes, offsets;
    std::vector<unsigned char> bytes;
};

// What a launch of a kernel with these parameters passes, by the rules of the language.
Launch current;

unsigned char next_byte;

template <typename T>
void add() {
    size_t offset = (current.bytes.size() + alignof(T) - 1) / alignof(T) * alignof(T);
    current.bytes.resize(offset, 0);
    current.sizes.push_back(sizeof(T));
    current.offsets.push_back(offset);
    for (size_t i = 0; i < sizeof(T); i++) current.bytes.push_back(next_byte++ | 1);
}

template <typename T>
T value(size_t index) {
    T value;
    memcpy(static_cast<void*>(&value), current.bytes.data() + current.offsets[index], sizeof(T));
    return value;
}

template <typename... Args, size_t... Index>
void launch(void (*kernel)(Args...), std::index_sequence<Index...>) {
    current = Launch{};
    current.function = reinterpret_cast<const void*>(kernel);
    (add<Args>(), ...);
    kernel<<<dim3(1), dim3(64), 256>>>(value<Args>(Index)...);
}

template <typename... Args>
void launch(void (*kernel)(Args...)) {
    launch(kernel, std::index_sequence_for<Args...>{});
}

}  // namespace

typedef void (*Binary)(void* context, void* modules, const void* wrapper);
typedef void (*HostFunction)(void* context, void* modules, const void* function, const char* name);
typedef void (*Launched)(void* context, const void* function, void** args, size_t count, const size_t* sizes,
                         const size_t* offsets, const unsigned char* bytes);

namespace {

struct Registered {
    const void* function;
    const char* name;
    void* modules;
};
// Pointers, because the compiler's constructor may run before those of this file.
const void* wrapper;
std::vector<Registered>* registered;
int modules;
Launched launched;
void* launched_context;
struct {
    dim3 grid, block;
    size_t shared;
    hipStream_t stream;
} configuration;

}  // namespace

extern "C" {

// Tells all that was registered, in its order.
void registrations(void* context, Binary binary, HostFunction function) {
    binary(context, &modules, wrapper);
    for (const Registered& one : *registered) function(context, one.modules, one.function, one.name);
}

// Launches all kernels; each launch is told with the compiler's own arguments and with what they should be.
void launch_all(void* context, Launched callback) {
    launched = callback;
    launched_context = context;
    launch(nothing);
    launch(scalars);
    launch(pointers);
    launch(vectors);
    launch(structs);
    launch(aligned);
    launch(bytes_1);
    launch(bytes_odd);
    launch(bytes_255);
    launch(bytes_256);
    launch(bytes_257);
    launch(bytes_4088);
    launch(bytes_4096);
    launch(used);
    launch(templated<char, 2>);
    launch(templated<double, 9>);
    launch(hidden_name);
#ifdef LIBRARY
    launch(prints);
    launch(local_memory);
#endif
    launch(too_large);
}

void** __hipRegisterFatBinary(const void* data) {
    wrapper = data;
    return reinterpret_cast<void**>(&modules);
}

void __hipRegisterFunction(void** binary, const void* function, char*, const char* name, unsigned, void*, void*, void*,
                           void*, int*) {
    if (!registered) registered = new std::vector<Registered>;
    registered->push_back({function, name, binary});
}

void __hipUnregisterFatBinary(void**) {}

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, hipStream_t stream) {
    configuration = {grid, block, shared, stream};
    return hipSuccess;
}

hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, hipStream_t* stream) {
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *stream = configuration.stream;
    return hipSuccess;
}

hipError_t hipLaunchKernel(const void* function, dim3, dim3, void** args, size_t, hipStream_t) {
    if (function != current.function) abort();
    launched(launched_context, function, args, current.sizes.size(), current.sizes.data(), current.offsets.data(),
             current.bytes.data());
    return hipSuccess;
}

}  // extern "C"
#endif
