"""What the model knows of libraries: names, signatures, and what things do."""

from __future__ import annotations

DATALOADER = "torch.utils.data.DataLoader"
DATASET = "torch.utils.data.Dataset"
TENSOR_DATASET = "torch.utils.data.TensorDataset"
ITERABLE_DATASET = "torch.utils.data.IterableDataset"
DISTRIBUTED_SAMPLER = "torch.utils.data.DistributedSampler"

# What launchers call the number of the GPU that a process is to use, in its environment.
LOCAL_RANKS = frozenset({"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"})

# One name for each thing that torch offers under several.
_CANONICAL = {
    "torch.utils.data.dataloader.DataLoader": DATALOADER,
    "torch.utils.data.dataset.Dataset": DATASET,
    "torch.utils.data.dataset.IterableDataset": ITERABLE_DATASET,
    "torch.utils.data.dataset.TensorDataset": "torch.utils.data.TensorDataset",
    "torch.utils.data.dataset.ConcatDataset": "torch.utils.data.ConcatDataset",
    "torch.utils.data.dataset.ChainDataset": "torch.utils.data.ChainDataset",
    "torch.utils.data.dataset.StackDataset": "torch.utils.data.StackDataset",
    "torch.utils.data.dataset.Subset": "torch.utils.data.Subset",
    "torch.utils.data.dataset.random_split": "torch.utils.data.random_split",
    "torch.utils.data.distributed.DistributedSampler": DISTRIBUTED_SAMPLER,
    "torch.utils.data._utils.worker.get_worker_info": "torch.utils.data.get_worker_info",
    "torch.utils.data.dataloader.default_collate": "torch.utils.data.default_collate",
    "torch.utils.data.sampler.RandomSampler": "torch.utils.data.RandomSampler",
    "torch.utils.data.sampler.SequentialSampler": "torch.utils.data.SequentialSampler",
    "torch.utils.data.sampler.SubsetRandomSampler": "torch.utils.data.SubsetRandomSampler",
    "torch.utils.data.sampler.WeightedRandomSampler": "torch.utils.data.WeightedRandomSampler",
    "torch.utils.data.sampler.BatchSampler": "torch.utils.data.BatchSampler",
    "torch.utils.data.sampler.Sampler": "torch.utils.data.Sampler",
}

TORCH_DATA_NAMES = frozenset(
    {
        "DataLoader", "Dataset", "IterableDataset", "TensorDataset", "ConcatDataset", "ChainDataset", "StackDataset",
        "Subset", "random_split", "DistributedSampler", "RandomSampler", "SequentialSampler", "SubsetRandomSampler",
        "WeightedRandomSampler", "BatchSampler", "Sampler", "get_worker_info", "default_collate",
    }
)  # fmt: skip

# torch's order: those before the bar may be given by position.
LOADER_PARAMETERS = (
    "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory",
    "drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
)  # fmt: skip

LOADER_DEFAULTS: dict[str, object] = {
    "batch_size": 1,
    "shuffle": None,
    "sampler": None,
    "batch_sampler": None,
    "num_workers": 0,
    "collate_fn": None,
    "pin_memory": False,
    "drop_last": False,
    "timeout": 0,
    "worker_init_fn": None,
    "multiprocessing_context": None,
    "generator": None,
    "prefetch_factor": None,
    "persistent_workers": False,
    "pin_memory_device": "",
    "in_order": True,
}

# Subclasses of DataLoader in libraries: they pass **kwargs on, and the options mean the same.
# The value is the parameters that may be given by position, and whether batches have a plain ``.to``.
LOADER_CLASSES: dict[str, tuple[str, ...]] = {
    DATALOADER: LOADER_PARAMETERS,
    "torchdata.stateful_dataloader.StatefulDataLoader": LOADER_PARAMETERS,
    "torch_geometric.loader.DataLoader": ("dataset", "batch_size", "shuffle", "follow_batch", "exclude_keys"),
    "torch_geometric.data.DataLoader": ("dataset", "batch_size", "shuffle", "follow_batch", "exclude_keys"),
    "torch_geometric.loader.DataListLoader": ("dataset", "batch_size", "shuffle"),
    "torch_geometric.loader.DenseDataLoader": ("dataset", "batch_size", "shuffle"),
    "torch_geometric.loader.NeighborLoader": ("data", "num_neighbors"),
    "torch_geometric.loader.LinkNeighborLoader": ("data", "num_neighbors"),
    "torch_geometric.loader.HGTLoader": ("data", "num_samples"),
    "torch_geometric.loader.ClusterLoader": ("cluster_data",),
    "monai.data.DataLoader": ("dataset", "num_workers"),
    "monai.data.dataloader.DataLoader": ("dataset", "num_workers"),
    "dgl.dataloading.DataLoader": ("graph", "indices", "graph_sampler", "device"),
    "dgl.dataloading.GraphDataLoader": ("dataset", "collate_fn"),
}

# Loaders whose batches are no plain tensors, or which sample on their own terms: only rules about their options.
SPECIAL_LOADERS = ("torch_geometric.", "dgl.")

FRAMEWORKS = {
    "pytorch_lightning": "Lightning",
    "lightning": "Lightning",
    "accelerate": "Accelerate",
    "transformers": "Transformers",
    "ignite": "Ignite",
    "fastai": "fastai",
    "composer": "Composer",
    "deepspeed": "DeepSpeed",
    "ray": "Ray",
    "torch_xla": "torch_xla",
    "skorch": "skorch",
    "catalyst": "Catalyst",
    "mmengine": "MMEngine",
    "keras": "Keras",
    "tensorflow": "Keras",
    "colossalai": "ColossalAI",
}

LIGHTNING_CLASSES = ("LightningModule", "LightningDataModule")

# Datasets of libraries that decode a file for each sample.
DECODING_DATASETS = frozenset(
    f"torchvision.datasets.{name}"
    for name in (
        "ImageFolder", "DatasetFolder", "CocoDetection", "CocoCaptions", "VOCDetection", "VOCSegmentation", "ImageNet",
        "Cityscapes", "Places365", "CelebA", "Flickr8k", "Flickr30k", "Food101", "Flowers102", "OxfordIIITPet",
        "StanfordCars", "FGVCAircraft", "Kinetics", "UCF101", "HMDB51", "SBDataset", "INaturalist", "Caltech101",
        "Caltech256", "DTD", "EuroSAT", "Country211", "SUN397", "GTSRB", "WIDERFace", "Imagenette", "LSUN",
    )
) | frozenset(
    f"torchaudio.datasets.{name}"
    for name in ("SPEECHCOMMANDS", "LIBRISPEECH", "LJSPEECH", "YESNO", "VCTK_092", "LIBRITTS", "GTZAN", "COMMONVOICE")
)  # fmt: skip

# Functions that datasets of libraries keep under a name, where nobody gives them another one.
INHERITED_FUNCTIONS = {
    ("torchvision.datasets.ImageFolder", "loader"): "torchvision.datasets.folder.default_loader",
    ("torchvision.datasets.ImageNet", "loader"): "torchvision.datasets.folder.default_loader",
}

# Datasets of libraries that hold everything in memory and are small.
MEMORY_DATASETS = frozenset(
    f"torchvision.datasets.{name}"
    for name in (
        "MNIST", "FashionMNIST", "KMNIST", "EMNIST", "QMNIST", "CIFAR10", "CIFAR100", "SVHN", "STL10", "USPS",
        "FakeData",
    )
) | {"torch.utils.data.TensorDataset"}  # fmt: skip

# Wrappers through which one sees the dataset inside, their first argument.
DATASET_WRAPPERS = frozenset(
    {"torch.utils.data.Subset", "torch.utils.data.random_split", "torch.utils.data.ConcatDataset", "copy.copy",
     "copy.deepcopy", "monai.data.Subset"}
)  # fmt: skip

# Transforms that only change the type: cheap.  Any other transform of a library counts as work.
CHEAP_TRANSFORMS = frozenset(
    {"ToTensor", "Normalize", "Compose", "PILToTensor", "ConvertImageDtype", "ToDtype", "ToImage", "Lambda", "Identity"}
)

# Functions that open, read or decode a file: what makes __getitem__ slow.
DECODERS = frozenset(
    {
        "PIL.Image.open", "cv2.imread", "cv2.imdecode", "cv2.VideoCapture", "skimage.io.imread", "imageio.imread",
        "imageio.v2.imread", "imageio.v3.imread", "matplotlib.image.imread", "matplotlib.pyplot.imread",
        "torchvision.io.read_image", "torchvision.io.decode_image", "torchvision.io.decode_jpeg",
        "torchvision.io.read_video", "torchvision.io.read_file", "torchvision.datasets.folder.default_loader",
        "torchvision.datasets.folder.pil_loader", "torchaudio.load", "librosa.load", "soundfile.read",
        "scipy.io.wavfile.read", "scipy.io.loadmat", "wave.open", "numpy.load", "numpy.loadtxt", "numpy.genfromtxt",
        "torch.load", "pandas.read_csv", "pandas.read_parquet", "pandas.read_pickle", "pandas.read_json",
        "pandas.read_hdf", "pandas.read_feather", "json.load", "pickle.load", "h5py.File", "tifffile.imread",
        "rasterio.open", "nibabel.load", "SimpleITK.ReadImage", "pydicom.dcmread", "zarr.open", "builtins.open",
        "gzip.open", "requests.get", "urllib.request.urlopen", "decord.VideoReader", "av.open", "joblib.load",
        "gdal.Open", "osgeo.gdal.Open", "safetensors.torch.load_file", "zipfile.ZipFile", "tarfile.open",
        "scipy.misc.imread", "scipy.sparse.load_npz", "open3d.io.read_point_cloud", "trimesh.load", "cv2.imreadmulti",
        "turbojpeg.decode", "jpeg4py.JPEG", "simplejpeg.decode_jpeg", "pyarrow.parquet.read_table", "yaml.safe_load",
    }
)  # fmt: skip

# Methods that read through a handle, whatever the handle is.
READING_METHODS = frozenset(
    {"read", "readline", "readlines", "extractfile", "readframes", "get_batch", "read_bytes", "read_text"}
)

# Whole-file readers whose result is the data itself, by what the result is: "array" is shared
# under fork, "objects" grows copy-on-write.
BULK_READERS: dict[str, str] = {
    "numpy.load": "array",
    "numpy.loadtxt": "array",
    "numpy.genfromtxt": "array",
    "numpy.fromfile": "array",
    "torch.load": "array",
    "scipy.io.loadmat": "array",
    "pandas.read_csv": "array",
    "pandas.read_parquet": "array",
    "pandas.read_pickle": "array",
    "pandas.read_hdf": "array",
    "pandas.read_feather": "array",
    "pandas.read_json": "array",
    "json.load": "objects",
    "json.loads": "objects",
    "pickle.load": "objects",
    "pickle.loads": "objects",
    "joblib.load": "objects",
    "dill.load": "objects",
    "yaml.safe_load": "objects",
    "yaml.load": "objects",
}

# Opening one of these gives a handle.  "file": one offset shared by forked workers; "connection":
# cannot be pickled, and its library forbids carrying it over a fork.
HANDLES: dict[str, str] = {
    "builtins.open": "file",
    "io.open": "file",
    "gzip.open": "file",
    "bz2.open": "file",
    "lzma.open": "file",
    "zipfile.ZipFile": "file",
    "tarfile.open": "file",
    "tarfile.TarFile": "file",
    "tarfile.TarFile.open": "file",
    "h5py.File": "connection",
    "tables.open_file": "connection",
    "netCDF4.Dataset": "connection",
    "lmdb.open": "connection",
    "lmdb.Environment": "connection",
    "sqlite3.connect": "connection",
    "psycopg2.connect": "connection",
    "pymysql.connect": "connection",
    "mysql.connector.connect": "connection",
    "pymongo.MongoClient": "connection",
    "redis.Redis": "connection",
    "redis.StrictRedis": "connection",
    "boto3.client": "connection",
    "boto3.resource": "connection",
    "cv2.VideoCapture": "connection",
    "decord.VideoReader": "connection",
    "duckdb.connect": "connection",
    "sqlalchemy.create_engine": "connection",
}

WRAPPING_ITERATORS = {
    "tqdm.tqdm": "tqdm",
    "tqdm.auto.tqdm": "tqdm",
    "tqdm.notebook.tqdm": "tqdm",
    "tqdm.autonotebook.tqdm": "tqdm",
    "tqdm.std.tqdm": "tqdm",
    "tqdm.tqdm_notebook": "tqdm",
    "tqdm.asyncio.tqdm": "tqdm",
    "rich.progress.track": "tqdm",
    "fastprogress.progress_bar": "tqdm",
    "fastprogress.fastprogress.progress_bar": "tqdm",
    "progressbar.progressbar": "tqdm",
    "alive_progress.alive_it": "tqdm",
    "builtins.iter": "iter",
    "builtins.reversed": "reversed",
    "builtins.sorted": "list",
    "builtins.list": "list",
    "builtins.tuple": "list",
    "builtins.set": "list",
    "builtins.filter": "filter",
    "itertools.islice": "islice",
    "itertools.cycle": "cycle",
    "itertools.takewhile": "filter",
}

# Answers that are the same wherever one asks: one choice for all of them.
SYMBOLS = {
    "torch.cuda.is_available": "cuda",
    "torch.backends.mps.is_available": "mps",
    "torch.backends.mps.is_built": "mps",
    "torch.accelerator.is_available": "accelerator",
    "torch.xpu.is_available": "xpu",
    "torch.distributed.is_available": "distributed available",
    "torch.distributed.is_initialized": "distributed initialised",
    "torch.distributed.is_torchelastic_launched": "torchelastic",
}

# Methods of a tensor, or of a nest of tensors, that give the same memory again.
VIEWS = frozenset(
    {"view", "reshape", "squeeze", "unsqueeze", "transpose", "permute", "flatten", "detach", "narrow", "expand", "t",
     "unbind", "chunk", "split", "swapaxes", "movedim", "values", "items", "get", "keys", "data", "T", "mT",
     "requires_grad_"}
)  # fmt: skip


# How many CPUs the machine has, whatever part of them this process may use.
CPU_COUNTS = frozenset(
    {"os.cpu_count", "multiprocessing.cpu_count", "torch.multiprocessing.cpu_count", "psutil.cpu_count"}
)

# What a computation with such a number gives: ``os.cpu_count() // 2``.
CPU_SHARE = "share of cpu_count"


def canonical(path: str) -> str:
    """The one name of what ``path`` names."""
    return _CANONICAL.get(path, path)


def framework_of(path: str) -> str:
    """The training framework that a dotted path belongs to, or ""."""
    return FRAMEWORKS.get(path.partition(".")[0], "")


def loader_class(path: str) -> bool:
    """Whether ``path`` is DataLoader or a library's subclass of it."""
    return path in LOADER_CLASSES
