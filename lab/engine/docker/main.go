package main

import (
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge"
	shimv2 "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfshim/sdk-v2"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/terraform-providers/terraform-provider-docker/shim"
)

// version is set by the build, to that of the Python package.
var version string

func tok(name string) tokens.Type { return tfbridge.MakeResource("docker", "index", name) }

func main() {
	info := tfbridge.ProviderInfo{
		P:       shimv2.NewProvider(shim.NewProvider()),
		Name:    "docker",
		Version: version,
		Config: map[string]*tfbridge.SchemaInfo{
			"registry_auth": {Name: "registryAuth", MaxItemsOne: tfbridge.False()},
		},
		Resources: map[string]*tfbridge.ResourceInfo{
			"docker_container": {Tok: tok("Container"), DeleteBeforeReplace: true, Fields: map[string]*tfbridge.SchemaInfo{
				"command":           {Name: "command"},
				"networks_advanced": {Name: "networksAdvanced"},
			}},
			"docker_image":   {Tok: tok("RemoteImage"), Fields: map[string]*tfbridge.SchemaInfo{"name": {Name: "name"}}},
			"docker_network": {Tok: tok("Network")},
			"docker_tag":     {Tok: tok("Tag")},
			"docker_volume":  {Tok: tok("Volume")},
		},
	}
	info.SetAutonaming(255, "-")
	tfbridge.Main("docker", version, info, nil)
}
