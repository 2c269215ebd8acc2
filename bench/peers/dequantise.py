"""A GGUF file with every tensor widened to float32; all else as it was."""

import os

import gguf

OWN_FIELDS = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")


def copy_fields(reader, writer):
    for name, field in reader.fields.items():
        if name.startswith(OWN_FIELDS):
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=sub)


def widen(source, target):
    """Writes `target`, unless it is there and newer than `source`."""
    if os.path.exists(target) and os.path.getmtime(target) >= os.path.getmtime(source):
        return
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    part = f"{target}.part"
    writer = gguf.GGUFWriter(part, architecture)
    copy_fields(reader, writer)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, values.reshape(tensor.shape[::-1]).astype("float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(part, target)
