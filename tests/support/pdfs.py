"""PDF files written by hand, so that their text is known."""

from io import BytesIO


def pdf(*pages: str) -> bytes:
    """A PDF with a page for each text, each line of which is a line on the page."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        shown = "".join(f"({line}) Tj 0 -14 Td\n" for line in text.splitlines())
        content = f"BT /F1 12 Tf 72 700 Td\n{shown}ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * number} 0 R"
            " /Resources << /Font << /F1 3 0 R >> >> >>",
            f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        ]
    made = b"%PDF-1.4\n"
    offsets: list[int] = []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(made))
        made += f"{number} 0 obj\n{content}\nendobj\n".encode()
    entries = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{entries}"
    end += f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(made)}\n%%EOF\n"
    return made + end.encode()


def locked(data: bytes, password: str) -> bytes:
    """The same PDF, encrypted; with an empty password anybody can open it."""
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(PdfReader(BytesIO(data)))
    writer.encrypt(password, "the owner's", algorithm="RC4-128")
    into = BytesIO()
    writer.write(into)
    return into.getvalue()
