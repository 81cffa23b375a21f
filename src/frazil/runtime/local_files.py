"""How the JVM writes local files: Hadoop's file system, without what a table has no use for."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import is_instance_of

_PACKAGE = "org/apache/hadoop/fs"
_PARENT = f"{_PACKAGE}/RawLocalFileSystem"
_SET_PERMISSION = f"(L{_PACKAGE}/Path;L{_PACKAGE}/permission/FsPermission;)V"
# Of the Java virtual machine's specification, chapters 4.1, 4.5 and 6.5.
_JAVA_8, _PUBLIC, _SUPER = 52, 1, 0x20
_ALOAD, _INVOKESPECIAL, _RETURN = 25, 183, 177


def prepare_local_files(gateway: Any) -> None:
    """Makes the JVM behind `gateway` write local files without a `.crc` file, and without starting a process for each.

    Hadoop's file system without checksums cannot be used: Iceberg's reader asks it for its scheme, which it does not know.
    """
    fs = gateway.jvm.org.apache.hadoop.fs
    local = fs.FileSystem.getLocal(gateway.jvm.org.apache.hadoop.conf.Configuration())
    local.setWriteChecksum(False)
    local.setVerifyChecksum(False)
    _leave_permissions(gateway, local)


def _leave_permissions(gateway: Any, local: Any) -> None:
    """Lets files and folders have the permissions that the process's umask gives them, like those that tasks write.

    Hadoop sets permissions of its own. Without its native library it runs `chmod` for that, twice for each file, which takes
    a third of the time of a commit and of its processor time.
    """
    jvm = gateway.jvm
    raw = local.getRaw()
    if jvm.org.apache.hadoop.io.nativeio.NativeIO.isAvailable() or not is_instance_of(gateway, raw, _dotted(_PARENT)):
        return
    lookups = jvm.java.lang.invoke.MethodHandles
    home = lookups.privateLookupIn(raw.getClass(), lookups.lookup())
    plain = home.defineClass(_without_permissions(jvm)).getConstructor(gateway.new_array(jvm.java.lang.Class, 0))
    plain = plain.newInstance(gateway.new_array(jvm.java.lang.Object, 0))
    plain.initialize(raw.getUri(), raw.getConf())
    field = jvm.java.lang.Class.forName(f"{_dotted(_PACKAGE)}.FilterFileSystem").getDeclaredField("fs")
    field.setAccessible(True)
    field.set(local, plain)


def _without_permissions(jvm: Any) -> Any:
    """Returns the bytes of a class whose parent is Hadoop's file system without checksums, and that sets no permissions:
    Java has no other way to override one method of a class at run time.
    """
    asm = jvm.org.apache.xbean.asm9
    made = asm.ClassWriter(0)
    made.visit(_JAVA_8, _PUBLIC | _SUPER, f"{_PACKAGE}/LocalFilesWithoutPermissions", None, _PARENT, None)
    create = made.visitMethod(_PUBLIC, "<init>", "()V", None, None)
    create.visitCode()
    create.visitVarInsn(_ALOAD, 0)
    create.visitMethodInsn(_INVOKESPECIAL, _PARENT, "<init>", "()V", False)
    create.visitInsn(_RETURN)
    create.visitMaxs(1, 1)
    create.visitEnd()
    ignore = made.visitMethod(_PUBLIC, "setPermission", _SET_PERMISSION, None, None)
    ignore.visitCode()
    ignore.visitInsn(_RETURN)
    ignore.visitMaxs(0, 3)
    ignore.visitEnd()
    made.visitEnd()
    return made.toByteArray()


def _dotted(name: str) -> str:
    return name.replace("/", ".")
