# The formula for a Homebrew tap. scripts/release fills in the version, the checksum and the dependencies.
class Tillerd < Formula
  desc "Daemon that owns coding-agent sessions, with clients for terminals and editors"
  homepage "https://pypi.org/project/tillerd/"
  url "https://files.pythonhosted.org/packages/source/t/tillerd/tillerd-@VERSION@.tar.gz"
  sha256 "@SHA256@"
  license "MIT"

  depends_on "python@3.13"

  # Some dependencies are written in Rust or C. Their wheels are used, in the versions of the release.
  def install
    python = libexec/"bin/python"
    system "python3.13", "-m", "venv", libexec
    (buildpath/"pinned.txt").write <<~EOS
@PINNED@
    EOS
    system python, "-m", "pip", "install", "--no-compile", "--only-binary=:all:", "-r", "pinned.txt"
    system python, "-m", "pip", "install", "--no-compile", "--no-deps", "."
    bin.install_symlink libexec/"bin/tiller", libexec/"bin/tillerd"
    bash_completion.install_symlink libexec/"share/bash-completion/completions/tiller"
    zsh_completion.install_symlink libexec/"share/zsh/site-functions/_tiller"
    fish_completion.install_symlink libexec/"share/fish/vendor_completions.d/tiller.fish"
    man1.install_symlink libexec.glob("share/man/man1/*.1")
  end

  def caveats
    <<~EOS
      Your sessions and settings stay when you uninstall tillerd. First run: tiller daemon stop
    EOS
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/tiller --version")
    system bin/"tiller", "demo", "--remove"
  end
end
